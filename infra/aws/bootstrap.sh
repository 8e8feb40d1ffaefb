# What a machine of a fleet does when it starts, as root: an inference server
# for each GPU, in a container, and one worker program for all of them. Before
# this text its user data exports ROLLOUT_CONFIG (the deployment's config),
# ROLLOUT_POOL, ROLLOUT_MODEL, ROLLOUT_REVISION, ROLLOUT_ENGINE_IMAGE,
# ROLLOUT_WORKER (where the program is in S3) and AWS_REGION.
#
# A machine on which that fails leaves its fleet and says why on its console,
# which `aws ec2 get-console-output` shows also when it is gone.
set -euo pipefail

root=${ROLLOUT_ROOT:-} # of the file system, but for tests
ready_within=${ROLLOUT_READY_WITHIN:-1200}
home=$root/opt/rollout units=$root/etc/systemd/system

say() { echo "$*" >"$home/said"; echo "rollout: $*" | tell; }
tell() { tee -a "$root/dev/console" >&2 || true; }

# Tries a command some times: the network may come up later than this.
insist() {
  local try
  for try in 1 2 3 4 5; do
    "$@" && return 0
    sleep "$try"
  done
  return 1
}

# The program by which the machine leaves its fleet, which becomes smaller by
# it: if its work is still there, another comes up for it. It says why, so that
# this ends if no machine can do the work. Whatever fails, it goes.
write_leave() {
  cat >"$home/leave" <<'EOF'
#!/usr/bin/env bash
echo "rollout: this machine leaves its fleet: $*" | tee -a "${ROLLOUT_ROOT:-}/dev/console" >&2
program=${ROLLOUT_ROOT:-}/opt/rollout/gpuworker
if [ -x "$program" ]; then
  timeout 60 "$program" --cloud aws --config "${ROLLOUT_ROOT:-}/etc/rollout/rollout.toml" --pool "$ROLLOUT_POOL" --give-up "$*"
fi
for try in 1 2 3 4 5 6; do
  id=$(cloud-init query instance_id) && aws autoscaling terminate-instance-in-auto-scaling-group --instance-id "$id" --should-decrement-desired-capacity && exit 0
  sleep "$((try * 10))"
done
# It costs money as long as it runs, and does nothing: a spot machine that is
# switched off is gone, and its group replaces it.
exec systemctl poweroff
EOF
  chmod 755 "$home/leave"
}

# Reads from the config whether the servers may have the secret hf-token, for
# models that need one, and what Secrets Manager calls it.
token_name() {
  python3 - "$1" <<'EOF'
import sys, tomllib
with open(sys.argv[1], "rb") as f:
    config = tomllib.load(f)
cloud = config["cloud"]
secrets = cloud.get("secrets", {})
if "hf-token" in secrets.get("allowlist", []) + config.get("secrets", []):
    print(secrets.get("prefix") or cloud.get("name", "rollout") + "/", "hf-token", sep="")
EOF
}

# Writes what the servers' environment has, for root alone.
write_environment() {
  local name token=""
  name=$(token_name "$root/etc/rollout/rollout.toml") || return 1
  if [ -n "$name" ]; then
    token=$(insist aws secretsmanager get-secret-value --secret-id "$name" --query SecretString --output text) || return 1
  fi
  (umask 077 && printf '%s\n' "${token:+HF_TOKEN=$token}" >"$root/etc/rollout/engine.env")
}

# Writes the unit of one GPU's server. It can't reach the machine's metadata,
# and so not the machine's role: that is one hop further than they go.
write_engine() {
  local gpu=$1 capability=$2 arguments
  arguments=(--model "$ROLLOUT_MODEL" --served-model-name "$ROLLOUT_MODEL")
  if [ -n "$ROLLOUT_REVISION" ]; then arguments+=(--revision "$ROLLOUT_REVISION"); fi
  if [ "${capability%%.*}" -lt 8 ]; then arguments+=(--dtype half); fi # it has no bfloat16
  cat >"$units/rollout-engine-$gpu.service" <<EOF
[Unit]
Description=rollout: inference server of GPU $gpu
After=docker.service network-online.target
Wants=network-online.target
Requires=docker.service
StartLimitIntervalSec=0

[Service]
ExecStartPre=-/usr/bin/docker rm --force rollout-engine-$gpu
ExecStart=/usr/bin/docker run --rm --name rollout-engine-$gpu --gpus device=$gpu --shm-size 2g \\
  --cap-drop ALL --security-opt no-new-privileges --env-file /etc/rollout/engine.env \\
  --volume /var/lib/rollout/models:/root/.cache/huggingface --publish 127.0.0.1:$((8000 + gpu)):8000 \\
  $(quote_unit "$ROLLOUT_ENGINE_IMAGE" "${arguments[@]}")
ExecStop=/usr/bin/docker stop --time 5 rollout-engine-$gpu
Restart=always
RestartSec=3
TimeoutStopSec=15
EOF
}

# Quotes words for systemd, which reads "%" and "$" in them as its own.
quote_unit() {
  local word
  for word in "$@"; do
    word=${word//\\/\\\\} word=${word//\"/\\\"} word=${word//%/%%} word=${word//\$/\$\$}
    printf '"%s" ' "$word"
  done
}

# Writes the unit of the worker. A notice gives it two minutes, of which it
# takes one; it stops before the servers do. Its last words go to the console as
# well: the machine may be gone soon after.
write_worker() {
  local arguments=(--cloud aws --config /etc/rollout/rollout.toml --pool "$ROLLOUT_POOL" --rented --log-format json) after=network-online.target gpu engines=
  for gpu in "$@"; do
    engines+=${engines:+,}http://127.0.0.1:$((8000 + gpu))/v1
    after+=" rollout-engine-$gpu.service"
  done
  if [ $# -gt 0 ]; then arguments+=(--gpus "$(IFS=,; echo "$*")" --engine "$engines"); fi
  cat >"$units/rollout-worker.service" <<EOF
[Unit]
Description=rollout: workers of pool $ROLLOUT_POOL
After=$after
Wants=network-online.target
OnFailure=rollout-leave.service
StartLimitIntervalSec=600
StartLimitBurst=10

[Service]
User=rollout
Environment=AWS_REGION=$AWS_REGION
ExecStart=/opt/rollout/gpuworker $(quote_unit "${arguments[@]}")
ExecStopPost=+/bin/sh -c 'journalctl --no-pager --lines 20 --output cat --unit rollout-worker >/dev/console'
Restart=on-failure
RestartSec=5
RestartPreventExitStatus=2 3
KillMode=mixed
TimeoutStopSec=90
LimitNOFILE=65536
NoNewPrivileges=yes
ProtectSystem=strict
ProtectHome=yes
PrivateTmp=yes
CapabilityBoundingSet=

[Install]
WantedBy=multi-user.target
EOF
  cat >"$units/rollout-leave.service" <<EOF
[Unit]
Description=rollout: leave the fleet

[Service]
Type=oneshot
Environment=AWS_REGION=$AWS_REGION ROLLOUT_POOL=$ROLLOUT_POOL
ExecStart=/opt/rollout/leave the worker failed again and again, see its words above
EOF
}

# Waits until every server answers. What it downloads first is the image and the
# model.
await_engines() {
  local deadline=$((SECONDS + ready_within)) gpu
  for gpu in "$@"; do
    until curl -fsS -m 5 -o "$root/dev/null" "http://127.0.0.1:$((8000 + gpu))/health"; do
      if [ "$SECONDS" -ge "$deadline" ]; then
        say "the inference server of GPU $gpu is not ready after $ready_within s:"
        journalctl --no-pager --lines 40 --unit "rollout-engine-$gpu" | tell
        return 1
      fi
      sleep "${ROLLOUT_LOOK_EVERY:-5}"
    done
  done
}

# Everything, in order. The message says what failed.
boot() {
  local gpus=() capabilities=() gpu capability i
  mkdir -p "$home" "$units" "$root/etc/rollout" "$root/var/lib/rollout/models"
  write_leave
  # What hangs, as a broken GPU's driver does, is paid for as well.
  systemd-run --quiet --unit rollout-overdue --on-active="$((ready_within + 900))" \
    --setenv=AWS_REGION="$AWS_REGION" --setenv=ROLLOUT_POOL="$ROLLOUT_POOL" "$home/leave" "it was not set up in time"
  printf '%s\n' "$ROLLOUT_CONFIG" >"$root/etc/rollout/rollout.toml"
  insist aws s3 cp --no-progress "$ROLLOUT_WORKER" "$home/gpuworker" || { say "the worker program can't be fetched from $ROLLOUT_WORKER"; return 1; }
  chmod 755 "$home/gpuworker"
  id rollout >/dev/null 2>&1 || useradd --system --no-create-home --shell /usr/sbin/nologin rollout

  if [ "$ROLLOUT_MODEL" != rollout/tiny ]; then # which the worker has in itself
    while IFS=', ' read -r gpu capability; do
      gpus+=("$gpu") capabilities+=("$capability")
    done < <(nvidia-smi --query-gpu=index,compute_cap --format=csv,noheader)
    if [ "${#gpus[@]}" = 0 ]; then say "the machine has no GPU, or its driver does not work"; return 1; fi
    write_environment || { say "the secret hf-token can't be read"; return 1; }
    for i in "${!gpus[@]}"; do write_engine "${gpus[i]}" "${capabilities[i]}"; done
  fi
  write_worker "${gpus[@]}"
  systemctl daemon-reload
  for gpu in "${gpus[@]}"; do systemctl start --no-block "rollout-engine-$gpu.service"; done
  await_engines "${gpus[@]}" || return 1
  systemctl stop rollout-overdue.timer
  systemctl enable --now rollout-worker.service || { say "the worker does not start"; return 1; }
  say "workers of pool $ROLLOUT_POOL have started"
}

set +e
(set -e && boot)
status=$?
set -e
if [ "$status" -ne 0 ]; then
  "$home/leave" "it could not be set up: $(cat "$home/said" || true)" || exec systemctl poweroff # if not even that could be written
fi
