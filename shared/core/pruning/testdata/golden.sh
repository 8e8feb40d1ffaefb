#!/usr/bin/env bash
# Writes golden.json with the values of SciPy and statsmodels. It needs Python 3.11 and installs the
# libraries into a temporary folder.
#
#   shared/core/pruning/testdata/golden.sh
set -euo pipefail
cd "$(dirname "$0")"
temp=$(mktemp -d)
trap 'rm -rf "$temp"' EXIT
python3 -m venv "$temp/venv"
"$temp/venv/bin/pip" install --quiet --disable-pip-version-check --only-binary :all: scipy==1.17.1 statsmodels==0.15.0
"$temp/venv/bin/python" golden.py >golden.json
