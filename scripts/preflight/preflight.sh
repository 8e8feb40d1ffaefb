#!/usr/bin/env bash
# Names what is missing on this machine, before anything is built or started. It
# fails if the build needs it, and only reports what a few targets need.
set -euo pipefail
cd "$(dirname "$0")/../.."

missing=0
need() { # command, what for, how to get it
  command -v "$1" >/dev/null && return
  echo "missing: $1, for $2: $3" >&2
  missing=1
}
want() {
  command -v "$1" >/dev/null || echo "optional, and not installed: $1, for $2: $3"
}

need go "everything" "install Go from https://go.dev/dl"
need git "make lint" "install git with your system's packages"
want npm "make llamacpp" "install Node.js"
want python3 "make huggingface" "install Python 3.11 or later"
want cc "make race" "install a C compiler, such as gcc"

if command -v go >/dev/null; then
  asked=$(awk '$1 == "go" {print $2}' go.mod)
  have=$(go env GOVERSION | sed 's/^go//')
  oldest=$(printf '%s\n%s\n' "$asked" "$have" | sort -V | head -n 1)
  if [ "$oldest" != "$asked" ] && [ "$(go env GOTOOLCHAIN)" = local ]; then
    echo "missing: Go $asked or later (this is $have, and GOTOOLCHAIN=local forbids it to download another): update Go" >&2
    missing=1
  fi
fi

free=$(df -Pk . | awk 'NR == 2 {print int($4 / 1024)}')
if [ "$free" -lt 2048 ]; then
  echo "missing: disk space: a cold build takes about 2 GiB, $free MiB are free here" >&2
  missing=1
fi
exit "$missing"
