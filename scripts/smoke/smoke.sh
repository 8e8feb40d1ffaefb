#!/usr/bin/env bash
# Starts an installation with two more workers and the product's own timings,
# kills a worker in the middle of a run, and checks that it is declared failed in
# time and that no answer is lost. Each worker loads two plugins, which score the answers.
#
#   make smoke        or scripts/smoke/smoke.sh, after make build
set -euo pipefail
cd "$(dirname "$0")/../.."

items=3000      # prompts in the run
limit_ms=8000   # a killed worker is declared failed within this
timeout_s=120   # of the whole run

say() { printf '%s\n' "$*"; }
fail() {
  printf 'smoke: FAILED: %s\n' "$*" >&2
  tail -n 25 "$work"/*.log >&2 || true
  exit 1
}
now_ms() { date +%s%3N; }

for program in rollout gpuworker; do
  [ -x "bin/$program" ] || { echo "smoke.sh: bin/$program does not exist: run make build" >&2; exit 1; }
done

work=$(mktemp -d "${TMPDIR:-/tmp}/rollout-smoke.XXXXXX")
pids=()
clean() {
  for pid in "${pids[@]}"; do kill -9 "$pid" 2>/dev/null || true; done
  wait 2>/dev/null || true
  rm -rf "$work"
}
trap clean EXIT

# until_ok SECONDS WHAT COMMAND...: waits until the command succeeds.
until_ok() {
  local end=$(($(now_ms) + $1 * 1000)) what=$2
  shift 2
  until "$@"; do
    [ "$(now_ms)" -lt "$end" ] || fail "timed out waiting for: $what"
    sleep 0.05
  done
}

begin() { # NAME COMMAND...: starts a process with its own log; its pid is in $last
  local name=$1
  shift
  "$@" >"$work/$name.out" 2>"$work/$name.log" &
  last=$!
  pids+=("$last")
}

# worker_of NAME: the id of the worker in the process of that name.
worker_of() { sed -n 's/.*msg=worker_registered worker=\([0-9A-Z]*\).*/\1/p' "$work/$1.log" | head -n 1; }
has() { grep -q "$1" "$2" 2>/dev/null; }

CGO_ENABLED=0 go build -trimpath -o "$work/fakellm" ./scripts/fakellm
begin fakellm "$work/fakellm" --latency 250ms --spread 0.5
until_ok 10 "fakellm's URL" has '^http' "$work/fakellm.out"
url=$(head -n 1 "$work/fakellm.out")

dir=$work/installation
mkdir -p "$dir/brevity"
cp examples/plugins/brevity/rollout-plugin.toml "$dir/brevity"
GOOS=wasip1 GOARCH=wasm CGO_ENABLED=0 go build -trimpath -ldflags=-s -buildmode=c-shared \
  -o "$dir/brevity/brevity.wasm" ./examples/plugins/brevity
cat >"$dir/rollout.toml" <<TOML
schema_version = 1
[worker]
in_flight = 16
[plugins.brevity]
path = "brevity"
[plugins.keywords]
path = "$PWD/examples/plugins/keywords"
trusted = true
[defaults]
schema_version = 1
kind = "batch"
[defaults.shard]
items = 32
[[defaults.grade]]
name = "short"
kind = "plugin"
plugin = "brevity"
[[defaults.grade]]
name = "mentions"
kind = "plugin"
plugin = "keywords"
expected = "words"
weight = 0
TOML

begin up bin/rollout up --dir "$dir" --engine "$url" --listen off
until_ok 20 "rollout is up" has 'rollout is up' "$work/up.log"
worker_pids=()
for name in worker-1 worker-2; do
  begin "$name" bin/gpuworker --dir "$dir" --engine "$url"
  until_ok 20 "$name registers" has worker_registered "$work/$name.log"
  worker_pids+=("$last")
done
for name in up worker-1 worker-2; do
  loaded=$(grep -c plugin_loaded "$work/$name.log" || true)
  [ "$loaded" -eq 2 ] || fail "$name has loaded $loaded plugins, not 2"
done
victim=$(worker_of worker-1)
say "started rollout up with one worker, and two more workers"

for ((n = 0; n < items; n++)); do
  printf '{"id":"s-%05d","prompt":"smoke question %d","words":["smoke"]}\n' "$n" "$n"
done >"$work/smoke.jsonl"
started=$(now_ms)
run=$(bin/rollout submit --dir "$dir" "$work/smoke.jsonl")
say "run $run: $items prompts, about 250 ms each, 48 at once"

# field NAME: a field of the run's status; nothing if it is not known yet.
field() { bin/rollout status --json --dir "$dir" "$run" 2>/dev/null | grep -o "\"$1\":[^,}]*" | head -n 1 | cut -d: -f2- | tr -d '"' || true; }
a_fifth_is_done() { [ "$(field done)" -ge $((items / 5)) ] 2>/dev/null; }
until_ok 60 "a fifth of the items is answered" a_fifth_is_done
done_then=$(field done)

killed=$(now_ms)
kill -9 "${worker_pids[0]}"
wait "${worker_pids[0]}" 2>/dev/null || true
say "killed worker $victim (SIGKILL) with $done_then items answered"

until_ok 20 "worker_failed of $victim" has "worker_failed.*$victim" "$work/up.log"
found=$(($(now_ms) - killed))
[ "$found" -le "$limit_ms" ] || fail "the killed worker was declared failed after $found ms, more than $limit_ms"
held=$(sed -n "s/.*worker_failed.*$victim.*shards=\([0-9]*\).*/\1/p" "$work/up.log" | head -n 1)

over() { case "$(field phase)" in completed | completed_with_errors | stopped | expired | over_budget | failed) return 0 ;; *) return 1 ;; esac; }
until_ok "$timeout_s" "the run's end" over
took=$(($(now_ms) - started))
phase=$(field phase)
[ "$phase" = completed ] || fail "the run is $phase"

out=$dir/bucket/runs/$run
rows=$(wc -l <"$out/completions.jsonl" | tr -d ' ')
errors=$(wc -l <"$out/errors.jsonl" | tr -d ' ')
[ "$rows" -eq "$items" ] && [ "$errors" -eq 0 ] || fail "$rows answers and $errors errors of $items items"
grep -o '^{"id":"[^"]*"' "$out/completions.jsonl" >"$work/ids.got"
grep -o '^{"id":"[^"]*"' "$work/smoke.jsonl" >"$work/ids.want"
cmp -s "$work/ids.got" "$work/ids.want" || fail "the answers are not one per item in input order"
for grader in short mentions; do
  scored=$(grep -c "\"$grader\":{\"score\":[0-9]" "$out/completions.jsonl" || true)
  [ "$scored" -eq "$items" ] || fail "the plugin of the grader $grader has scored $scored of $items answers"
done
failed=$(grep -c worker_failed "$work/up.log" || true)
[ "$failed" -eq 1 ] || fail "$failed workers were declared failed, although one was killed"

asked=$(curl -fsS "$url/metrics" 2>/dev/null | sed -n 's/^fakellm_requests_total.* //p' || true)
cat <<REPORT

smoke: OK
  worker declared failed   after $found ms (limit $limit_ms ms); it held ${held:-?} shards
  run                      $items of $items items in $((took / 1000)).$(printf %03d $((took % 1000))) s, in input order, no errors
  plugins                  2 in each of 3 workers, all answers scored by both
  requests sent            ${asked:-unknown} for $items items
REPORT
