# Each machine of a fleet runs this script as root when it starts. It starts an
# inference server in a container for each GPU, or for each group of GPUs that the pool
# says, and one worker program for all of them. The machine's user data exports these
# variables before this text: ROLLOUT_CONFIG (the deployment's config), ROLLOUT_POOL,
# ROLLOUT_MODEL, ROLLOUT_READY_WITHIN (seconds), ROLLOUT_WORKER (the S3 URL of the worker
# program), ROLLOUT_LOGS (a log group, or empty) and AWS_REGION. The worker program itself writes the units of the servers, so
# that nothing of the config goes through this shell.
#
# If a step fails, the machine leaves its fleet and writes the reason to its
# console. `aws ec2 get-console-output` shows it, also after the machine is gone. The log
# group keeps the end of its logs, in a stream with the id of the machine.
set -euo pipefail

root=${ROLLOUT_ROOT:-} # root of the file system; tests set it to a folder
ready_within=${ROLLOUT_READY_WITHIN:-1200} # from the start of this script
home=$root/opt/rollout units=$root/etc/systemd/system

say() { echo "$*" >"$home/last_message"; echo "rollout: $*" | tell; }
tell() { tee -a "$root/dev/console" >&2 || true; }

# Prints the seconds since the machine was switched on. The clock of the day jumps when it is
# first set, which is while machines boot.
uptime_seconds() {
  local seconds
  read -r seconds _ <"$root/proc/uptime" && echo "${seconds%%.*}"
}

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

# Calls the worker program for the machine's pool.
of_pool() { "$home/gpuworker" machine "$@" --config "$root/etc/rollout/rollout.toml" --pool "$ROLLOUT_POOL"; }

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
# Keeps the end of the logs. No end fails for that.
keep_logs() {
  local id events=${ROLLOUT_ROOT:-}/opt/rollout/events.json to=(--log-group-name "$ROLLOUT_LOGS" --log-stream-name)
  id=$(cloud-init query instance_id) && to+=("$id") || return 0
  journalctl --no-pager --lines 400 --output short-iso --unit 'rollout-*' --unit cloud-final |
    "$program" machine events -- "this machine leaves its fleet: $*" >"$events" &&
    aws logs create-log-stream "${to[@]}" && aws logs put-log-events "${to[@]}" --log-events "file://$events" >/dev/null
}
if [ -x "$program" ] && [ -n "${ROLLOUT_LOGS:-}" ]; then
  export -f keep_logs && export program
  timeout 30 bash -c 'keep_logs "$@"' keep_logs "$*" || true
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

# Writes the environment file of the servers, which only root can read. It has the secret
# hf-token if the config allows it, for models that need a token.
write_environment() {
  local name token=""
  name=$(of_pool hub-secret) || return 1
  if [ -n "$name" ]; then
    token=$(retry aws secretsmanager get-secret-value --secret-id "$name" --query SecretString --output text) || return 1
  fi
  (umask 077 && printf '%s\n' "${token:+HF_TOKEN=$token}" >"$root/etc/rollout/engine.env")
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
  local arguments=(--cloud aws --config /etc/rollout/rollout.toml --pool "$ROLLOUT_POOL" --rented --log-format json) after=network-online.target
  local number port ready limits gpus list='' engines='' per=1
  if [ -s "$home/servers" ]; then
    while read -r number port ready limits gpus; do
      engines+=${engines:+,}http://127.0.0.1:$port/v1 list+=${list:+,}$gpus
      after+=" rollout-engine-$number.service" per=$(($(tr -cd , <<<"$gpus" | wc -c) + 1))
    done <"$home/servers"
    arguments+=(--gpus "$list" --gpus-per-server "$per" --engine "$engines")
  fi
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
Environment=AWS_REGION=$AWS_REGION TMPDIR=/var/tmp
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
RuntimeDirectory=rollout-worker
RuntimeDirectoryPreserve=yes
CapabilityBoundingSet=

[Install]
WantedBy=multi-user.target
EOF
  cat >"$units/rollout-disks.service" <<END
[Unit]
Description=rollout: keep images and models on the own disks
After=local-fs.target dlami-nvme.service
Before=containerd.service docker.service

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/opt/rollout/gpuworker machine disks

[Install]
WantedBy=multi-user.target
END
  cat >"$units/rollout-leave.service" <<EOF
[Unit]
Description=rollout: leave the fleet

[Service]
Type=oneshot
Environment=AWS_REGION=$AWS_REGION ROLLOUT_POOL=$ROLLOUT_POOL ROLLOUT_LOGS=${ROLLOUT_LOGS:-}
ExecStart=/opt/rollout/leave the worker failed again and again, see its log above
EOF
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
  timeout 20 "$home/gpuworker" --cloud aws --config "$root/etc/rollout/rollout.toml" --pool "$ROLLOUT_POOL" --boot-stage "$1" || true
}

# Fetches the servers' image, unless the machine's image has it. A registry that fails is no
# failure of the servers. For a private registry the worker program has written a config for
# Docker and the program that it names.
fetch_image() {
  local image
  image=$(cat "$home/image")
  docker image inspect "$image" >"$root/dev/null" 2>&1 ||
    PATH=$home:$PATH DOCKER_CONFIG=$root/etc/rollout/docker retry docker pull --quiet "$image"
}

# Fetches a model from a bucket, if the pool's model lies in one, or the bucket has a copy of
# one of the hub. Without a copy, or with a damaged one, the server fetches it from the hub.
fetch_model() {
  local from to=$root/var/lib/rollout/model
  [ -s "$home/model" ] || { of_pool fetch-model 2>&1 | tell || true; return 0; }
  from=$(cat "$home/model")
  mkdir -p "$to"
  case $from in
  *.gguf) retry aws s3 cp --no-progress "$from" "$to/" ;;
  *.json) of_pool fetch-model 2>&1 | tell ;; # the list of a model's files; it retries by itself
  *) retry aws s3 sync --no-progress "$from" "$to" ;;
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
  local gpus reason number engines=() enabled=()
  began=$(uptime_seconds)
  mkdir -p "$home" "$units" "$root/etc/rollout" "$root/var/lib/rollout/models"
  write_leave
  # A step that hangs, as with a broken GPU driver, must not leave the machine
  # running: after this time it leaves its fleet.
  systemd-run --quiet --unit rollout-overdue --on-active="$((ready_within + 900))" \
    --setenv=AWS_REGION="$AWS_REGION" --setenv=ROLLOUT_POOL="$ROLLOUT_POOL" --setenv=ROLLOUT_LOGS="${ROLLOUT_LOGS:-}" "$home/leave" "it was not set up in time"
  printf '%s\n' "$ROLLOUT_CONFIG" >"$root/etc/rollout/rollout.toml"
  retry aws s3 cp --no-progress "$ROLLOUT_WORKER" "$home/gpuworker" || { say "the worker program can't be fetched from $ROLLOUT_WORKER"; return 1; }
  chmod 755 "$home/gpuworker"
  id rollout >/dev/null 2>&1 || useradd --system --no-create-home --shell /usr/sbin/nologin rollout

  if [ "$ROLLOUT_MODEL" != rollout/tiny ]; then # the worker itself serves rollout/tiny
    gpus=$(nvidia-smi --query-gpu=index,compute_cap --format=csv,noheader) || gpus=
    if [ -z "$gpus" ]; then say "the machine has no GPU, or its driver does not work"; return 1; fi
    reason=$(of_pool units <<<"$gpus" 2>&1) || { say "the inference servers can't be set up: ${reason#gpuworker: }"; return 1; }
    write_environment || { say "the secret hf-token can't be read"; return 1; }
  fi
  write_worker
  # Enabled before any container starts: to enable a unit reloads systemd, after which some
  # drivers take the GPUs away from containers that run.
  enabled=(rollout-worker.service)
  if [ -s "$home/servers" ]; then
    while read -r number _; do engines+=("rollout-engine-$number.service"); done <"$home/servers"
    enabled+=(rollout-disks.service "${engines[@]}")
  fi
  systemctl daemon-reload
  systemctl enable "${enabled[@]}" || { say "the units can't be enabled"; return 1; }
  if [ -s "$home/servers" ]; then
    use_own_disks || { say "Docker does not start"; return 1; }
    stage image
    reason=$(fetch_image 2>&1) || { say "the image $(cat "$home/image") can't be fetched: ${reason##*$'\n'}"; return 1; }
    stage model
    fetch_model || { say "the model can't be fetched from $(cat "$home/model")"; return 1; }
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
  "$home/leave" "it could not be set up: $(cat "$home/last_message" || true)" || exec systemctl poweroff # if the program itself could not be written
fi
