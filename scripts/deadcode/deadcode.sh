#!/usr/bin/env bash
# Fails if a function is reachable from no program and no test of the
# repository. It analyzes all modules together, in a workspace that it makes for
# the time, because nested modules use functions of the main one.
#
#   scripts/deadcode/deadcode.sh
set -euo pipefail
cd "$(dirname "$0")/../.."

go=${GO:-go}
tool=golang.org/x/tools/cmd/deadcode@v0.52.0
temp=$(mktemp -d)
trap 'rm -rf "$temp"' EXIT

GOWORK=off GOBIN="$temp" "$go" install "$tool"
# A workspace does not read the toolchain line of go.mod.
GOTOOLCHAIN=$("$go" env GOVERSION)
export GOTOOLCHAIN GOWORK="$temp/go.work"
packages=()
{
  awk '$1 == "go"' go.mod
  while read -r file; do
    folder=$(cd "$(dirname "$file")" && pwd)
    echo "use \"$folder\""
    packages+=("$folder/...")
  done < <(git ls-files -- 'go.mod' '*/go.mod')
} >"$GOWORK"

dead=$("$temp/deadcode" -test -filter '^rollout(/|$)' "${packages[@]}")
if [ -n "$dead" ]; then
  echo "$dead"
  echo "deadcode: remove these functions, or call them from a program or a test" >&2
  exit 1
fi
