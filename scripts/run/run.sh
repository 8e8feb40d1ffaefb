#!/usr/bin/env bash
# Runs the demo: puts the example prompts into a fresh bucket and lets one
# process answer them over HTTP with a server that needs no model, at the pace
# of a real one. The product itself shows the progress and what came out.
#
#   scripts/run/run.sh [folder]        default: out/demo; it is emptied first
set -euo pipefail
cd "$(dirname "$0")/../.."

demo=${1:-out/demo}
mark=.rollout-demo

for program in bin/rollout bin/fakellm; do
  [ -x "$program" ] || { echo "run.sh: $program is not there: run make build" >&2; exit 1; }
done
if [ -e "$demo" ] && [ ! -e "$demo/$mark" ] && [ -n "$(ls -A "$demo")" ]; then
  echo "run.sh: $demo holds something else than a demo: name another folder" >&2
  exit 1
fi

rm -rf "$demo"
mkdir -p "$demo/bucket/prompts"
touch "$demo/$mark"

# The server prints its URL as soon as it listens, and ends with this script.
bin/fakellm --latency 1s --spread 0.5 >"$demo/engine.url" &
server=$!
trap 'kill "$server" 2>/dev/null || true' EXIT
until [ -s "$demo/engine.url" ]; do
  kill -0 "$server" 2>/dev/null || { echo "run.sh: bin/fakellm did not start" >&2; exit 1; }
  sleep 0.1
done
url=$(cat "$demo/engine.url")

# The config goes first, so that it is there when its prompts are seen. A file
# counts as uploaded once it is renamed into the bucket.
for file in prompts.toml prompts.jsonl; do
  cp "examples/$file" "$demo/$file.part"
  mv "$demo/$file.part" "$demo/bucket/prompts/$file"
done

echo "rollout up --dir $demo --engine $url/v1 --once"
bin/rollout up --dir "$demo" --engine "$url/v1" --once
