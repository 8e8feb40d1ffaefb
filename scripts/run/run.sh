#!/usr/bin/env bash
# Runs the demo: puts the example prompts into a new bucket, and answers them in
# one process with the built-in model. rollout itself shows progress and results.
#
#   scripts/run/run.sh [folder]        default: out/demo; it is emptied first
set -euo pipefail
cd "$(dirname "$0")/../.."

demo=${1:-out/demo}
mark=.rollout-demo

[ -x bin/rollout ] || { echo "run.sh: bin/rollout does not exist: run make build" >&2; exit 1; }
if [ -e "$demo" ] && [ ! -e "$demo/$mark" ] && [ -n "$(ls -A "$demo")" ]; then
  echo "run.sh: $demo has other files than those of a demo: name another folder" >&2
  exit 1
fi

rm -rf "$demo"
mkdir -p "$demo/bucket/prompts"
touch "$demo/$mark"

# The config goes first, because a run starts as soon as its prompts are there. A
# file counts as uploaded once it is renamed into the bucket.
for file in prompts.toml prompts.jsonl; do
  cp "examples/$file" "$demo/$file.part"
  mv "$demo/$file.part" "$demo/bucket/prompts/$file"
done

echo "rollout up --dir $demo --once"
bin/rollout up --dir "$demo" --once
