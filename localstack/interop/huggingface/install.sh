#!/usr/bin/env bash
# Creates a Python environment in out/huggingface with the libraries that check.py
# needs: safetensors, tokenizers, numpy, and jinja2 for chat templates.
set -euo pipefail
cd "$(dirname "$0")/../../.."
out=out/huggingface
want="safetensors==0.8.0 tokenizers==0.23.3 numpy==2.4.6 jinja2==3.1.6 markupsafe==3.0.3"

if [ ! -e "$out/.packages" ] || [ "$(cat "$out/.packages")" != "$want" ]; then
  command -v python3 >/dev/null || { echo "huggingface: python3 is not installed: install Python 3" >&2; exit 1; }
  rm -rf "$out"
  python3 -m venv "$out"
  # --no-deps omits dependencies that only serve downloads from Hugging Face's hub.
  "$out/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps --only-binary :all: $want
  echo "$want" >"$out/.packages"
fi
echo "huggingface: installed $want in $out"
