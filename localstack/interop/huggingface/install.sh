#!/usr/bin/env bash
# Makes a Python environment in out/huggingface with the libraries that read
# exported folders: safetensors, tokenizers, numpy, and jinja2 for templates.
set -euo pipefail
cd "$(dirname "$0")/../../.."
out=out/huggingface
want="safetensors==0.8.0 tokenizers==0.23.3 numpy==2.4.6 jinja2==3.1.6 markupsafe==3.0.3"

if [ ! -e "$out/.packages" ] || [ "$(cat "$out/.packages")" != "$want" ]; then
  command -v python3 >/dev/null || { echo "huggingface: python3 is not installed" >&2; exit 1; }
  rm -rf "$out"
  python3 -m venv "$out"
  # Without dependencies: they are for downloads from Hugging Face's hub.
  "$out/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps --only-binary :all: $want
  echo "$want" >"$out/.packages"
fi
echo "huggingface: $want in $out"
