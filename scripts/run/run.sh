#!/usr/bin/env bash
# Runs the demo: puts the example prompts into a fresh bucket, lets one process
# answer them with the mock engine, and shows what came out.
#
#   scripts/run/run.sh [folder]        default: out/demo; it is emptied first
set -euo pipefail
cd "$(dirname "$0")/../.."

demo=${1:-out/demo}
rollout=bin/rollout
mark=.rollout-demo

[ -x "$rollout" ] || { echo "run.sh: $rollout is not there: run make build" >&2; exit 1; }
if [ -e "$demo" ] && [ ! -e "$demo/$mark" ] && [ -n "$(ls -A "$demo")" ]; then
  echo "run.sh: $demo holds something else than a demo: name another folder" >&2
  exit 1
fi

rm -rf "$demo"
mkdir -p "$demo/bucket/prompts"
touch "$demo/$mark"

# The config goes first, so that it is there when its prompts are seen. A file
# counts as uploaded once it is renamed into the bucket.
for file in prompts.toml prompts.jsonl; do
  cp "examples/$file" "$demo/$file.part"
  mv "$demo/$file.part" "$demo/bucket/prompts/$file"
done

"$rollout" up --dir "$demo" --engine mock --once

summary=$(ls "$demo"/bucket/runs/*/summary.json 2>/dev/null | head -n 1 || true)
[ -n "$summary" ] || { echo "run.sh: the run wrote no summary.json under $demo/bucket/runs" >&2; exit 1; }
run=$(dirname "$summary")

printf '\n%s has %s answers; the first three:\n\n' "$run/completions.jsonl" "$(wc -l <"$run/completions.jsonl" | tr -d ' ')"
head -n 3 "$run/completions.jsonl" | cut -c 1-300
if [ -s "$run/errors.jsonl" ]; then
  printf '\n%s has %s errors.\n' "$run/errors.jsonl" "$(wc -l <"$run/errors.jsonl" | tr -d ' ')"
fi
printf '\n%s:\n\n' "$summary"
cat "$summary"
echo
