#!/usr/bin/env bash
# Installs axe-core, which looks for what people with disabilities can't use in a page, in out/axe, from its
# npm package. Its digest is that of the version below.
#
#   scripts/browser/axe.sh
set -euo pipefail
cd "$(dirname "$0")/../.."

version=4.14.1
digest=29348999450cdf2849a8e70b7912fc2da85a849da39c0d0d5394f51d4a9ed95c
file=out/axe/axe-$version.min.js
[ -f "$file" ] && exit 0
command -v npm >/dev/null || { echo "browser: npm is not installed, which downloads axe-core: install Node.js" >&2; exit 1; }
temp=$(mktemp -d)
trap 'rm -rf "$temp"' EXIT
npm pack --silent --pack-destination "$temp" "axe-core@$version" >/dev/null
tar -xzf "$temp/axe-core-$version.tgz" -C "$temp" package/axe.min.js
echo "$digest  $temp/package/axe.min.js" | sha256sum --check --quiet
mkdir -p out/axe
mv "$temp/package/axe.min.js" "$file"
