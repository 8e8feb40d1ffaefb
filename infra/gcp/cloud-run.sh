#!/usr/bin/env bash
# A task of a Cloud Run job runs this script in the engine's image: it serves the model, and
# works for the pool. jobs.tf sets ROLLOUT_CONFIG (the deployment's config), ROLLOUT_POOL,
# ROLLOUT_MODEL, ROLLOUT_READY_WITHIN (seconds), ROLLOUT_WORKER (the worker's file beside
# this script), the variables of the server and, for models that need it, HF_TOKEN. The
# worker program itself knows the server's command, so that nothing of the config goes
# through this shell.
#
# A model of the hub comes from the bucket if it has a copy, and is stored there if it has
# none. A task's files lie in its memory, wherever they come from.
#
# Cloud Run ends a task 10 s after SIGTERM. The worker then has 8 s to hand its work back;
# the server is killed at the end. A task that ends before it works records why.
set -euo pipefail

programs=${ROLLOUT_FOLDER:-/programs}
work_for=${ROLLOUT_WORK_FOR:-2940} # seconds: the task's time is 3000
ready_within=${ROLLOUT_READY_WITHIN:-1200}
began=$SECONDS

say() { echo "rollout: $*" >&2; }

# A mounted bucket has no files that can be executed.
program=${TMPDIR:-/tmp}/gpuworker
install -m 755 "$programs/$ROLLOUT_WORKER" "$program"
worker=("$program" --cloud gcp --pool "$ROLLOUT_POOL" --log-format json)
export RUNTIME_DIRECTORY=${TMPDIR:-/tmp}/rollout-worker # the worker notes there that it has started
mkdir -p "$RUNTIME_DIRECTORY"
engine='' working='' storing=''

# Records why this task can't work, and ends it.
give_up() {
  trap : TERM # the reason is being recorded
  timeout 60 "${worker[@]}" --give-up "$1" || true
  exit 1
}

# shellcheck disable=SC2329 # the trap below calls it
asked_to_end() {
  if [ -n "$working" ]; then
    kill "$working" 2>/dev/null || true # it drains
  else
    give_up "the task was asked to end before its inference server was ready"
  fi
}

trap asked_to_end TERM
trap 'kill $engine $storing 2>/dev/null || true' EXIT

if [ "$ROLLOUT_MODEL" != rollout/tiny ]; then # the worker itself serves rollout/tiny
  mapfile -d '' -t server < <("$program" machine command --pool "$ROLLOUT_POOL")
  if [ "${#server[@]}" = 0 ]; then
    give_up "the command of the inference server is not known; see the log of the task"
  fi
  # Where servers look for models of the hub: the image may have some there.
  models=${HF_HOME:-${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/huggingface}/hub
  models=${HF_HUB_CACHE:-${HUGGINGFACE_HUB_CACHE:-$models}}
  export HF_HUB_CACHE=$models LLAMA_CACHE=${LLAMA_CACHE:-$models}
  # Without a copy, or with a damaged one, the server fetches the model from the hub.
  "$program" machine fetch-model --pool "$ROLLOUT_POOL" --hub-cache "$models" >&2 &
  engine=$!
  wait "$engine" || true
  log=${TMPDIR:-/tmp}/server.log
  : >"$log" # tail may come before the server
  "${server[@]}" >"$log" 2>&1 &
  engine=$!
  tail -n +1 -f --pid "$engine" "$log" >&2 & # into the log of the task, until the server ends
  # In the background, because a signal waits for a program in the foreground.
  until { curl -fsS -m 5 -o /dev/null http://127.0.0.1:8000/health & wait $!; }; do
    if ! kill -0 "$engine" 2>/dev/null; then
      cause=$(tail -n 200 "$log" | "$program" machine cause) || cause="see the log of the task"
      give_up "the inference server ended before it was ready: $cause"
    fi
    if [ "$((SECONDS - began))" -ge "$ready_within" ]; then
      give_up "the inference server was not ready after $ready_within s"
    fi
    sleep "${ROLLOUT_LOOK_EVERY:-5}" & wait $!
  done
  worker+=(--engine http://127.0.0.1:8000/v1)
  # For the next tasks, beside the work.
  nice -n 15 "$program" machine store-model --pool "$ROLLOUT_POOL" --hub-cache "$models" >&2 &
  storing=$!
fi

# The worker hands its work over before the task's time is up: SIGTERM drains it.
left=$((work_for - (SECONDS - began)))
if [ "$left" -le 0 ]; then # timeout reads 0 as no limit
  give_up "the inference server was ready after $((SECONDS - began)) s, and a task works until $work_for s"
fi
timeout --signal TERM --kill-after 20 "$left" "${worker[@]}" &
working=$!
status=0
wait "$working" || status=$?
# A signal interrupts wait; the worker may still drain.
while kill -0 "$working" 2>/dev/null; do wait "$working" || status=$?; done
case $status in
0 | 124 | 143) say "the worker ended"; exit 0 ;; # done, out of time, or asked to end
*) say "the worker failed with $status"; exit "$status" ;;
esac
