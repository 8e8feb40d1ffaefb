#!/usr/bin/env bash
# Fuzzes every Fuzz function of the module, one after the other. Go's own limit
# for making a new input shorter is a minute, in which it tries no other input, so
# that the script sets a second.
#
#   scripts/fuzz/fuzz.sh [time each]        default: 10s
set -euo pipefail
cd "$(dirname "$0")/../.."

go=${GO:-go}
time=${1:-10s}
found=0

while IFS=: read -r file line; do
  name=$(sed -E 's/^func (Fuzz[A-Za-z0-9_]*)\(.*/\1/' <<<"$line")
  found=$((found + 1))
  echo "fuzz: $name in ./$(dirname "$file") for $time"
  "$go" test -run '^$' -fuzz "^${name}\$" -fuzztime "$time" -fuzzminimizetime 1s "./$(dirname "$file")"
done < <(git grep --untracked -E '^func Fuzz[A-Za-z0-9_]*\(' -- '*_test.go')

[ "$found" -gt 0 ] || { echo "fuzz: no Fuzz functions found" >&2; exit 1; }
