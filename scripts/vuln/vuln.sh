#!/usr/bin/env bash
# Looks up known vulnerabilities in what the programs call, in the database of
# vuln.go.dev, or if that cannot be reached, in its copy on the Go module proxy.
#
#   scripts/vuln/vuln.sh [packages]        default: ./...
set -euo pipefail
cd "$(dirname "$0")/../.."

go=${GO:-go}
tool=golang.org/x/vuln/cmd/govulncheck@v1.9.0
copy=golang.org/x/vulndb@latest
db=https://vuln.go.dev

if command -v curl >/dev/null && ! curl -fsS -m 10 -o /dev/null "$db/index/db.json" 2>/dev/null; then
  echo "vuln: $db can't be reached: using $copy of the Go module proxy" >&2
  if ! told=$(cd /tmp && "$go" mod download -json "$copy"); then
    echo "vuln: neither can be reached: run this on a machine with access to $db" >&2
    exit 1
  fi
  db=file://$(sed -n 's/.*"Dir": "\(.*\)".*/\1/p' <<<"$told")/data/osv
fi

"$go" run "$tool" -db "$db" "${@:-./...}"
