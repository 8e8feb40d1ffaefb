#!/usr/bin/env bash
# Runs the demo of trials: asks the questions of examples/trials.jsonl under three variants, with
# three workers and a scripted model, and compares the variants.
#
#   scripts/run/trials.sh [folder]     default: out/demo-trials; it is emptied first
#   BIN=folder                         of the programs; default: bin
set -euo pipefail
cd "$(dirname "$0")/../.."

demo=${1:-out/demo-trials}
bin=${BIN:-bin}
mark=.rollout-demo

for program in rollout fakellm; do
  [ -x "$bin/$program" ] || { echo "trials.sh: $bin/$program does not exist: run make build" >&2; exit 1; }
done
if [ -e "$demo" ] && [ ! -e "$demo/$mark" ] && [ -n "$(ls -A "$demo")" ]; then
  echo "trials.sh: $demo has other files than those of a demo: name another folder" >&2
  exit 1
fi

rm -rf "$demo"
mkdir -p "$demo/bucket/prompts"
touch "$demo/$mark"

# The model prints its URL when it listens, on a free port, and ends with this script.
mkfifo "$demo/model"
"$bin/fakellm" --examinee --listen 127.0.0.1:0 > "$demo/model" &
model=$!
trap 'kill "$model" 2> /dev/null || true; wait "$model" 2> /dev/null || true' EXIT
read -r url < "$demo/model" || { echo "trials.sh: the model did not start" >&2; exit 1; }

# Prices make the report say what each variant costs. They are in dollars a million tokens.
printf '%s\n' 'schema_version = 1' '[engine]' 'prompt_price = 0.5' 'completion_price = 2' > "$demo/rollout.toml"

# The config goes first, because a run starts as soon as its tasks are there. A
# file counts as uploaded once it is renamed into the bucket.
for file in trials.toml trials.jsonl; do
  cp "examples/$file" "$demo/$file.part"
  mv "$demo/$file.part" "$demo/bucket/prompts/$file"
done

echo "rollout up --dir $demo --once --workers 3 --engine $url"
"$bin/rollout" up --dir "$demo" --once --workers 3 --engine "$url" --listen 127.0.0.1:0

echo
"$bin/rollout" report trials --dir "$demo"

echo
"$bin/rollout" report trials --dir "$demo" -o "$demo/report.html"
