#!/usr/bin/env bash
# Runs a command that installs what a target needs. Exit 0: it is there. Else it
# is said aloud, with exit 1 in CI, which must not pass without it, and exit 3 at
# a desk, where the target is skipped.
#
#   scripts/toolbox/need.sh TARGET WHAT COMMAND...
set -euo pipefail
target=$1 what=$2
shift 2
"$@" && exit 0
if [ "${CI:-}" = true ]; then
  echo "$target: $what can't be installed here" >&2
  exit 1
fi
echo "SKIPPED: $target: $what can't be installed here"
exit 3
