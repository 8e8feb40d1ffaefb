#!/usr/bin/env bash
# A task of a Cloud Run job runs this script in the engine's image: it serves the model, and
# works for the pool. jobs.tf sets ROLLOUT_CONFIG (the deployment's config), ROLLOUT_POOL,
# ROLLOUT_MODEL, ROLLOUT_READY_WITHIN (seconds), ROLLOUT_WORKER (the worker's file beside
# this script), the variables of the server and, for models that need it, HF_TOKEN. The
# worker program itself knows the server's command, so that nothing of the config goes
# through this shell.
#
# Cloud Run ends a task 10 s after SIGTERM. The worker then has 8 s to hand its work back;
# the server is killed at the end.
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
engine='' working=''
trap 'kill "$working" 2>/dev/null || exit 0' TERM
trap 'kill "$engine" 2>/dev/null || true' EXIT

if [ "$ROLLOUT_MODEL" != rollout/tiny ]; then # the worker itself serves rollout/tiny
  mapfile -d '' -t server < <("$program" machine command --pool "$ROLLOUT_POOL")
  if [ "${#server[@]}" = 0 ]; then
    "${worker[@]}" --give-up "the command of the inference server is not known; see the log of the task" || true
    exit 1
  fi
  log=${TMPDIR:-/tmp}/server.log
  "${server[@]}" >"$log" 2>&1 &
  engine=$!
  tail -n +1 -f --pid "$engine" "$log" >&2 & # into the log of the task, until the server ends
  until curl -fsS -m 5 -o /dev/null http://127.0.0.1:8000/health; do
    if ! kill -0 "$engine" 2>/dev/null; then
      cause=$(tail -n 200 "$log" | "$program" machine cause) || cause="see the log of the task"
      "${worker[@]}" --give-up "the inference server ended before it was ready: $cause" || true
      exit 1
    fi
    if [ "$((SECONDS - began))" -ge "$ready_within" ]; then
      "${worker[@]}" --give-up "the inference server was not ready after $ready_within s" || true
      exit 1
    fi
    sleep "${ROLLOUT_LOOK_EVERY:-5}" & wait $!
  done
  worker+=(--engine http://127.0.0.1:8000/v1)
fi

# The worker hands its work over before the task's time is up: SIGTERM drains it.
timeout --signal TERM --kill-after 20 "$((work_for - (SECONDS - began)))" "${worker[@]}" &
working=$!
status=0
wait "$working" || status=$?
# A signal interrupts wait; the worker may still drain.
while kill -0 "$working" 2>/dev/null; do wait "$working" || status=$?; done
case $status in
0 | 124 | 143) say "the worker ended"; exit 0 ;; # done, out of time, or asked to end
*) say "the worker failed with $status"; exit "$status" ;;
esac
