# Each machine of a group runs this script as root at each start. It starts an inference
# server in a container for each GPU, and one worker program for all of them. The template
# of the machines exports these variables before this text: ROLLOUT_CONFIG (the
# deployment's config), ROLLOUT_AUDIENCE (of the machine's identity tokens), ROLLOUT_POOL,
# ROLLOUT_MODEL, ROLLOUT_REVISION, ROLLOUT_ENGINE_IMAGE, ROLLOUT_PROJECT, ROLLOUT_PROGRAMS
# (the bucket of programs), ROLLOUT_WORKER (the worker's object in it) and
# ROLLOUT_HUB_SECRET (the secret with Hugging Face's token, or empty).
#
# If a step fails, the machine records the reason, so that the pool's runs pause if machine
# after machine fails, leaves its group, and powers off. Its last words are in Cloud Logging.
set -euo pipefail

root=${ROLLOUT_ROOT:-} # root of the file system; tests set it to a folder
ready_within=${ROLLOUT_READY_WITHIN:-1200}
metadata=http://metadata.google.internal/computeMetadata/v1
home=$root/opt/rollout units=$root/etc/systemd/system

say() { echo "$*" >"$home/last_message"; echo "rollout: $*" | tell; }
tell() { tee -a "$root/dev/console" >&2 || true; }

# Tries a command up to five times: the network may come up after this script starts.
retry() {
  local try
  for try in 1 2 3 4 5; do
    "$@" && return 0
    sleep "$try"
  done
  return 1
}

# Requests a URL of Google Cloud with the machine's own account.
google() {
  local token
  token=$(curl -fsS -m 10 -H 'Metadata-Flavor: Google' "$metadata/instance/service-accounts/default/token" |
    python3 -c 'import json, sys; print(json.load(sys.stdin)["access_token"])') || return 1
  printf 'header = "Authorization: Bearer %s"\n' "$token" | curl -fsS -K - "$@"
}

fetch_worker() {
  local bucket=https://storage.googleapis.com/storage/v1/b/$ROLLOUT_PROGRAMS
  google -o "$home/gpuworker" "$bucket/o/$ROLLOUT_WORKER?alt=media"
}

hub_token() {
  local secrets=https://secretmanager.googleapis.com/v1/projects/$ROLLOUT_PROJECT/secrets
  google "$secrets/$ROLLOUT_HUB_SECRET/versions/latest:access" |
    python3 -c 'import base64, json, sys; print(base64.b64decode(json.load(sys.stdin)["payload"]["data"]).decode())'
}

# Writes the program that gives the machine up.
write_give_up() {
  cat >"$home/give-up" <<'END'
#!/usr/bin/env bash
echo "rollout: this machine gives up: $*" | tee -a "${ROLLOUT_ROOT:-}/dev/console" >&2
program=${ROLLOUT_ROOT:-}/opt/rollout/gpuworker
if [ -x "$program" ]; then
  config=${ROLLOUT_ROOT:-}/etc/rollout/rollout.toml
  timeout 60 "$program" --cloud gcp --config "$config" --pool "$ROLLOUT_POOL" --give-up "$*"
fi
# Leave the group by the function that the metadata name: otherwise the group starts the
# machine again, or another one.
metadata=http://metadata.google.internal/computeMetadata/v1/instance
ask() { curl -fsS -m 10 -H 'Metadata-Flavor: Google' "$metadata/$1"; }
for try in 1 2 3; do
  address=$(ask attributes/rollout-leave) &&
    token=$(ask "service-accounts/default/identity?audience=$ROLLOUT_AUDIENCE&format=full") &&
    printf 'header = "Authorization: Bearer %s"\ndata = "{\\"token\\":\\"%s\\"}"\n' "$token" "$token" |
    curl -fsS -m 60 -K - -H 'Content-Type: application/json' "$address" && break
  sleep "$try"
done
exec systemctl poweroff
END
  chmod 755 "$home/give-up"
}

# Writes the environment file of the servers, which only root can read.
write_environment() {
  local token=""
  if [ -n "$ROLLOUT_HUB_SECRET" ]; then token=$(retry hub_token) || return 1; fi
  (umask 077 && printf '%s\n' "${token:+HF_TOKEN=$token}" >"$root/etc/rollout/engine.env")
}

# Keeps containers from the metadata server's tokens. Its port 53 answers for names, which
# they need.
block_metadata() { iptables -I DOCKER-USER -d metadata.google.internal -p tcp --dport 80 -j DROP; }

# Writes the systemd unit of one GPU's server.
write_engine() {
  local gpu=$1 arguments
  arguments=(--model "$ROLLOUT_MODEL" --served-model-name "$ROLLOUT_MODEL")
  if [ -n "$ROLLOUT_REVISION" ]; then arguments+=(--revision "$ROLLOUT_REVISION"); fi
  cat >"$units/rollout-engine-$gpu.service" <<END
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
TimeoutStopSec=10
END
}

# Quotes words for systemd, which expands "%" and "$" in them.
quote_unit() {
  local word
  for word in "$@"; do
    word=${word//\\/\\\\} word=${word//\"/\\\"} word=${word//%/%%} word=${word//\$/\$\$}
    printf '"%s" ' "$word"
  done
}

# Writes the systemd unit of the worker. A spot machine is switched off 30 s after its
# notice; the worker drains within 15 s, before the servers stop.
write_worker() {
  local arguments=(--cloud gcp --config /etc/rollout/rollout.toml --pool "$ROLLOUT_POOL" --rented --log-format json)
  local after=network-online.target gpu engines=
  for gpu in "$@"; do
    engines+=${engines:+,}http://127.0.0.1:$((8000 + gpu))/v1
    after+=" rollout-engine-$gpu.service"
  done
  if [ $# -gt 0 ]; then arguments+=(--gpus "$(IFS=,; echo "$*")" --engine "$engines"); fi
  cat >"$units/rollout-worker.service" <<END
[Unit]
Description=rollout: workers of pool $ROLLOUT_POOL
After=$after
Wants=network-online.target
OnFailure=rollout-give-up.service
StartLimitIntervalSec=600
StartLimitBurst=10

[Service]
User=rollout
ExecStart=/opt/rollout/gpuworker $(quote_unit "${arguments[@]}")
ExecStopPost=+/bin/sh -c 'journalctl --no-pager --lines 20 --output cat --unit rollout-worker >/dev/console'
Restart=on-failure
RestartSec=5
RestartPreventExitStatus=2 3
KillMode=mixed
TimeoutStopSec=20
LimitNOFILE=65536
NoNewPrivileges=yes
ProtectSystem=strict
ProtectHome=yes
PrivateTmp=yes
CapabilityBoundingSet=

[Install]
WantedBy=multi-user.target
END
  cat >"$units/rollout-give-up.service" <<END
[Unit]
Description=rollout: give the machine up

[Service]
Type=oneshot
Environment=ROLLOUT_POOL=$ROLLOUT_POOL ROLLOUT_AUDIENCE=$ROLLOUT_AUDIENCE
ExecStart=/opt/rollout/give-up the worker failed again and again, see its log above
END
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
  local gpus=() gpu
  mkdir -p "$home" "$units" "$root/etc/rollout" "$root/var/lib/rollout/models"
  write_give_up
  # A step that hangs, as with a broken GPU driver, must not leave the machine running.
  systemd-run --quiet --unit rollout-overdue --on-active="$((ready_within + 900))" \
    --setenv=ROLLOUT_POOL="$ROLLOUT_POOL" --setenv=ROLLOUT_AUDIENCE="$ROLLOUT_AUDIENCE" \
    "$home/give-up" "it was not set up in time"
  printf '%s\n' "$ROLLOUT_CONFIG" >"$root/etc/rollout/rollout.toml"
  retry fetch_worker || { say "the worker can't be fetched from the bucket $ROLLOUT_PROGRAMS"; return 1; }
  chmod 755 "$home/gpuworker"
  id rollout >/dev/null 2>&1 || useradd --system --no-create-home --shell /usr/sbin/nologin rollout

  if [ "$ROLLOUT_MODEL" != rollout/tiny ]; then # the worker itself serves rollout/tiny
    while read -r gpu; do gpus+=("$gpu"); done < <(nvidia-smi --query-gpu=index --format=csv,noheader)
    if [ "${#gpus[@]}" = 0 ]; then say "the machine has no GPU, or its driver does not work"; return 1; fi
    write_environment || { say "the secret $ROLLOUT_HUB_SECRET can't be read"; return 1; }
    block_metadata || { say "the machine's metadata can't be hidden from the servers"; return 1; }
    for gpu in "${gpus[@]}"; do write_engine "$gpu"; done
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
  # Power off here if even the program that gives up could not be written.
  "$home/give-up" "it could not be set up: $(cat "$home/last_message" || true)" || exec systemctl poweroff
fi
