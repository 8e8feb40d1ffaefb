# Each machine of a fleet runs this script as root when it starts. It starts an
# inference server in a container for each GPU, and one worker program for all
# of them. The machine's user data exports these variables before this text:
# ROLLOUT_CONFIG (the deployment's config), ROLLOUT_POOL, ROLLOUT_MODEL,
# ROLLOUT_REVISION, ROLLOUT_ENGINE_IMAGE, ROLLOUT_WORKER (the S3 URL of the worker
# program) and AWS_REGION.
#
# If a step fails, the machine leaves its fleet and writes the reason to its
# console. `aws ec2 get-console-output` shows it, also after the machine is gone.
set -euo pipefail

root=${ROLLOUT_ROOT:-} # root of the file system; tests set it to a folder
ready_within=${ROLLOUT_READY_WITHIN:-1200}
home=$root/opt/rollout units=$root/etc/systemd/system

say() { echo "$*" >"$home/last_message"; echo "rollout: $*" | tell; }
tell() { tee -a "$root/dev/console" >&2 || true; }

# Tries a command up to five times: the network may come up after this script
# starts.
retry() {
  local try
  for try in 1 2 3 4 5; do
    "$@" && return 0
    sleep "$try"
  done
  return 1
}

# Writes the program by which the machine leaves its fleet. It terminates the
# machine and lowers the fleet's desired size by one; if work is still queued,
# the autoscaler starts another machine. It first records the reason (--give-up),
# so that the pool's runs are paused if machine after machine fails. It ends the
# machine even if a step fails.
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
# The machine costs money while it runs and does nothing. Powering off a spot
# machine terminates it, and its group replaces it.
exec systemctl poweroff
EOF
  chmod 755 "$home/leave"
}

# Prints the name of the secret hf-token in Secrets Manager if the config allows
# it, for models that need a token; else prints nothing.
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

# Writes the environment file of the servers, which only root can read.
write_environment() {
  local name token=""
  name=$(token_name "$root/etc/rollout/rollout.toml") || return 1
  if [ -n "$name" ]; then
    token=$(retry aws secretsmanager get-secret-value --secret-id "$name" --query SecretString --output text) || return 1
  fi
  (umask 077 && printf '%s\n' "${token:+HF_TOKEN=$token}" >"$root/etc/rollout/engine.env")
}

# Writes the systemd unit of one GPU's server. The container can't reach the
# machine's metadata, and so can't use the machine's role: the metadata service
# answers within one network hop, and a container is two hops away.
write_engine() {
  local gpu=$1 capability=$2 arguments
  arguments=(--model "$ROLLOUT_MODEL" --served-model-name "$ROLLOUT_MODEL")
  if [ -n "$ROLLOUT_REVISION" ]; then arguments+=(--revision "$ROLLOUT_REVISION"); fi
  if [ "${capability%%.*}" -lt 8 ]; then arguments+=(--dtype half); fi # no bfloat16 before compute capability 8
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

# Quotes words for systemd, which expands "%" and "$" in them.
quote_unit() {
  local word
  for word in "$@"; do
    word=${word//\\/\\\\} word=${word//\"/\\\"} word=${word//%/%%} word=${word//\$/\$\$}
    printf '"%s" ' "$word"
  done
}

# Writes the systemd unit of the worker. A preemption notice comes two minutes
# before the end; the worker drains within one, before the servers stop. The end
# of its log also goes to the console, because the machine may soon be gone.
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
ExecStart=/opt/rollout/leave the worker failed again and again, see its log above
EOF
}

# Waits until every server answers. Each first downloads the image and the model.
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

# Sets the machine up. If a step fails, the last message says which.
boot() {
  local gpus=() capabilities=() gpu capability i
  mkdir -p "$home" "$units" "$root/etc/rollout" "$root/var/lib/rollout/models"
  write_leave
  # A step that hangs, as with a broken GPU driver, must not leave the machine
  # running: after this time it leaves its fleet.
  systemd-run --quiet --unit rollout-overdue --on-active="$((ready_within + 900))" \
    --setenv=AWS_REGION="$AWS_REGION" --setenv=ROLLOUT_POOL="$ROLLOUT_POOL" "$home/leave" "it was not set up in time"
  printf '%s\n' "$ROLLOUT_CONFIG" >"$root/etc/rollout/rollout.toml"
  retry aws s3 cp --no-progress "$ROLLOUT_WORKER" "$home/gpuworker" || { say "the worker program can't be fetched from $ROLLOUT_WORKER"; return 1; }
  chmod 755 "$home/gpuworker"
  id rollout >/dev/null 2>&1 || useradd --system --no-create-home --shell /usr/sbin/nologin rollout

  if [ "$ROLLOUT_MODEL" != rollout/tiny ]; then # the worker itself serves rollout/tiny
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
  "$home/leave" "it could not be set up: $(cat "$home/last_message" || true)" || exec systemctl poweroff # if the program itself could not be written
fi
