#!/usr/bin/env bash
# Creates a Python environment in out/duckdb with DuckDB.
set -euo pipefail
cd "$(dirname "$0")/../../.."
out=out/duckdb
want="duckdb==2.0.0"

if [ ! -e "$out/.packages" ] || [ "$(cat "$out/.packages")" != "$want" ]; then
  command -v python3 >/dev/null || { echo "duckdb: python3 is not installed: install Python 3" >&2; exit 1; }
  rm -rf "$out"
  python3 -m venv "$out"
  "$out/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps --only-binary :all: $want
  echo "$want" >"$out/.packages"
fi
echo "duckdb: installed $want in $out"
