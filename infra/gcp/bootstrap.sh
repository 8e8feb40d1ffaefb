# Each machine of a group runs this script as root at each start. It starts an inference
# server in a container for each GPU, or for each group of GPUs that the pool says, and one
# worker program for all of them. The template of the machines exports these variables
# before this text: ROLLOUT_CONFIG (the deployment's config), ROLLOUT_AUDIENCE (of the
# machine's identity tokens), ROLLOUT_POOL, ROLLOUT_MODEL, ROLLOUT_READY_WITHIN (seconds),
# ROLLOUT_PROJECT, ROLLOUT_PROGRAMS (the bucket of programs), ROLLOUT_WORKER (the worker's
# object in it) and ROLLOUT_HUB_SECRET (the secret with Hugging Face's token, or empty). The
# worker program itself writes the units of the servers, so that nothing of the config goes
# through this shell.
#
# If a step fails, the machine records the reason, so that the pool's runs pause if machine
# after machine fails, leaves its group, and powers off. Its last words are in Cloud Logging.
set -euo pipefail

root=${ROLLOUT_ROOT:-} # root of the file system; tests set it to a folder
ready_within=${ROLLOUT_READY_WITHIN:-1200} # from the start of this script
metadata=http://metadata.google.internal/computeMetadata/v1
home=$root/opt/rollout units=$root/etc/systemd/system

say() { echo "$*" >"$home/last_message"; echo "rollout: $*" | tell; }
tell() { tee -a "$root/dev/console" >&2 || true; }

# Prints the seconds since the machine was switched on. The clock of the day jumps when it is
# first set, which is while machines boot.
uptime_seconds() {
  local seconds
  read -r seconds _ <"$root/proc/uptime" && echo "${seconds%%.*}"
}

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

# Calls the worker program for the machine's pool.
of_pool() { "$home/gpuworker" machine "$@" --config "$root/etc/rollout/rollout.toml" --pool "$ROLLOUT_POOL"; }

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
  local after=network-online.target
  local number port ready limits gpus list='' engines='' per=1
  if [ -s "$home/servers" ]; then
    while read -r number port ready limits gpus; do
      engines+=${engines:+,}http://127.0.0.1:$port/v1 list+=${list:+,}$gpus
      after+=" rollout-engine-$number.service" per=$(($(tr -cd , <<<"$gpus" | wc -c) + 1))
    done <"$home/servers"
    arguments+=(--gpus "$list" --gpus-per-server "$per" --engine "$engines")
  fi
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
Environment=TMPDIR=/var/tmp
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
RuntimeDirectory=rollout-worker
RuntimeDirectoryPreserve=yes
CapabilityBoundingSet=

[Install]
WantedBy=multi-user.target
END
  cat >"$units/rollout-disks.service" <<END
[Unit]
Description=rollout: keep images and models on the own disks
After=local-fs.target
Before=containerd.service docker.service

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/opt/rollout/gpuworker machine disks
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

# Waits until every server answers. Each first loads the model, and downloads one of the hub.
# One that exits three times before will not do better the fourth time: its last error is the
# reason.
await_engines() {
  local before=$(($(uptime_seconds) - began)) number port ready limits gpus tokens waiting late
  while :; do
    waiting='' late=$(($(uptime_seconds) - began >= ready_within))
    while read -r number port ready limits gpus; do
      curl -fsS -m 5 -o "$root/dev/null" "http://127.0.0.1:$port$ready" && continue
      waiting+=" $number"
      if [ "$(restarts "$number")" -ge 3 ]; then
        say "the inference server of GPU $gpus exited three times before it was ready: $(cause "$number")"
        return 1
      elif [ "$late" = 1 ]; then
        say "the inference server of GPU $gpus is not ready after $ready_within s, and started after $before s: $(cause "$number")"
        return 1
      fi
    done <"$home/servers"
    [ -n "$waiting" ] || break
    sleep "${ROLLOUT_LOOK_EVERY:-5}"
  done
  while read -r number port ready limits gpus; do
    if tokens=$(curl -fsS -m 5 "http://127.0.0.1:$port$limits" | of_pool context); then
      echo "rollout: the inference server of GPU $gpus has a context of $tokens tokens" | tell
    fi
  done <"$home/servers"
}

# Prints how often a server's container was started again.
restarts() {
  local times
  times=$(systemctl show --property NRestarts --value "rollout-engine-$1.service") || times=
  case $times in '' | *[!0-9]*) echo 0 ;; *) echo "$times" ;; esac
}

# Prints the line of a server's log that says what is wrong, and the log to the console.
cause() {
  journalctl --no-pager --lines 200 --output cat --unit "rollout-engine-$1" >"$home/engine.log" || true
  tail -n 40 "$home/engine.log" | tell
  "$home/gpuworker" machine cause <"$home/engine.log" || true
}

# Says how far the boot is, for `rollout status`. No boot fails for that.
stage() {
  timeout 20 "$home/gpuworker" --cloud gcp --config "$root/etc/rollout/rollout.toml" --pool "$ROLLOUT_POOL" --boot-stage "$1" || true
}

# Fetches the servers' image, unless the machine's image has it. A registry that fails is no
# failure of the servers.
fetch_image() {
  local image
  image=$(cat "$home/image")
  docker image inspect "$image" >"$root/dev/null" 2>&1 || retry docker pull --quiet "$image"
}

# Fetches a model from a bucket, if the pool's model lies in one, or the bucket has a copy of
# one of the hub. Without a copy, or with a damaged one, the server fetches it from the hub.
fetch_model() {
  local from to=$root/var/lib/rollout/model
  [ -s "$home/model" ] || { of_pool fetch-model 2>&1 | tell || true; return 0; }
  from=$(cat "$home/model")
  mkdir -p "$to"
  case $from in
  *.gguf) retry gcloud storage cp "$from" "$to/" ;;
  *.json) of_pool fetch-model 2>&1 | tell ;; # the list of a model's files; it retries by itself
  *) retry gcloud storage rsync --recursive "$from" "$to" ;;
  esac
}

# Stores the model that the servers fetched from the hub in the bucket, for the next machines,
# beside the work.
store_model() {
  systemd-run --quiet --unit rollout-store-model --property=Nice=15 "$home/gpuworker" machine store-model \
    --config "$root/etc/rollout/rollout.toml" --pool "$ROLLOUT_POOL" || true
}

# Puts images and models on the machine's own disks, if it has some. Docker must not run
# meanwhile.
use_own_disks() {
  systemctl stop docker.socket docker.service containerd.service || true
  systemctl start rollout-disks.service || true
  systemctl start containerd.service docker.service
}

# Sets the machine up. If a step fails, the last message says which.
boot() {
  local gpus reason number engines=()
  began=$(uptime_seconds)
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
    gpus=$(nvidia-smi --query-gpu=index,compute_cap --format=csv,noheader) || gpus=
    if [ -z "$gpus" ]; then say "the machine has no GPU, or its driver does not work"; return 1; fi
    reason=$(of_pool units <<<"$gpus" 2>&1) || { say "the inference servers can't be set up: ${reason#gpuworker: }"; return 1; }
    write_environment || { say "the secret $ROLLOUT_HUB_SECRET can't be read"; return 1; }
  fi
  write_worker
  # Nothing is enabled: this script runs at each start, and hides the metadata before a server
  # starts. Nor is systemd reloaded once containers run: some drivers then take the GPUs away
  # from them.
  systemctl daemon-reload
  if [ -s "$home/servers" ]; then
    use_own_disks || { say "Docker does not start"; return 1; }
    block_metadata || { say "the machine's metadata can't be hidden from the servers"; return 1; }
    stage image
    reason=$(fetch_image 2>&1) || { say "the image $(cat "$home/image") can't be fetched: ${reason##*$'\n'}"; return 1; }
    stage model
    fetch_model || { say "the model can't be fetched from $(cat "$home/model")"; return 1; }
    while read -r number _; do engines+=("rollout-engine-$number.service"); done <"$home/servers"
    systemctl start --no-block "${engines[@]}"
    await_engines || return 1
    stage ready
  fi
  systemctl stop rollout-overdue.timer
  systemctl start rollout-worker.service || { say "the worker does not start"; return 1; }
  [ ! -s "$home/servers" ] || store_model
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
