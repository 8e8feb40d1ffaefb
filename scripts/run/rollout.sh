#!/usr/bin/env bash
# Runs the demo of a rollout that learns: answers examples/refunds.jsonl with three
# workers and a scripted model, which knows nothing but what its guidance says.
# rollout shows progress and results; then the guidance is printed that came of it, and
# its report is written.
#
#   scripts/run/rollout.sh [folder]    default: out/demo-rollout; it is emptied first
#   BIN=folder                         of the programs; default: bin
set -euo pipefail
cd "$(dirname "$0")/../.."

demo=${1:-out/demo-rollout}
bin=${BIN:-bin}
mark=.rollout-demo

for program in rollout fakellm; do
  [ -x "$bin/$program" ] || { echo "rollout.sh: $bin/$program does not exist: run make build" >&2; exit 1; }
done
if [ -e "$demo" ] && [ ! -e "$demo/$mark" ] && [ -n "$(ls -A "$demo")" ]; then
  echo "rollout.sh: $demo has other files than those of a demo: name another folder" >&2
  exit 1
fi

rm -rf "$demo"
mkdir -p "$demo/bucket/prompts"
touch "$demo/$mark"

# The model prints its URL when it listens, on a free port, and ends with this script.
mkfifo "$demo/model"
"$bin/fakellm" --clerk --listen 127.0.0.1:0 > "$demo/model" &
model=$!
trap 'kill "$model" 2> /dev/null || true; wait "$model" 2> /dev/null || true' EXIT
read -r url < "$demo/model" || { echo "rollout.sh: the model did not start" >&2; exit 1; }

# The config goes first, because a run starts as soon as its tickets are there. A
# file counts as uploaded once it is renamed into the bucket.
for file in refunds.toml refunds.jsonl; do
  cp "examples/$file" "$demo/$file.part"
  mv "$demo/$file.part" "$demo/bucket/prompts/$file"
done

echo "rollout up --dir $demo --once --workers 3 --engine $url"
"$bin/rollout" up --dir "$demo" --once --workers 3 --engine "$url" --listen 127.0.0.1:0

echo
echo "the guidance that came of \"When in doubt, be fair to both sides.\":"
"$bin/rollout" guidance show refunds --dir "$demo"

echo
"$bin/rollout" report refunds --dir "$demo" -o "$demo/report.html"
