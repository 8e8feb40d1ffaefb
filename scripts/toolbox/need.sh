#!/usr/bin/env bash
# Runs a command that installs what a target needs. If that fails, it reports it
# and exits with 1 in CI, where the target must not be skipped, or with 3
# elsewhere, so that the caller skips the target.
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
