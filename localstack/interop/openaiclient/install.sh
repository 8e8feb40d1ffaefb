#!/usr/bin/env bash
# Creates a Python environment in out/openaiclient with OpenAI's client.
set -euo pipefail
cd "$(dirname "$0")/../../.."
out=out/openaiclient
want="openai==3.57.0"

if [ ! -e "$out/.packages" ] || [ "$(cat "$out/.packages")" != "$want" ]; then
  command -v python3 >/dev/null || { echo "openaiclient: python3 is not installed: install Python 3" >&2; exit 1; }
  rm -rf "$out"
  python3 -m venv "$out"
  "$out/bin/python" -m pip install --quiet --disable-pip-version-check --only-binary :all: $want
  echo "$want" >"$out/.packages"
fi
echo "openaiclient: installed $want in $out"
