#!/usr/bin/env bash
# Installs Debian's Chromium with apt-get, unless a browser is there. It needs root
# or sudo without a password.
#
#   scripts/browser/install.sh
set -euo pipefail

for name in chromium chromium-browser google-chrome; do
  command -v "$name" >/dev/null && exit 0
done
as_root=()
[ "$(id -u)" = 0 ] || as_root=(sudo -n)
if ! command -v apt-get >/dev/null || ! "${as_root[@]}" true; then
  echo "browser: chromium is not installed: install it, or run this as root on Debian or Ubuntu" >&2
  exit 1
fi
"${as_root[@]}" apt-get update -qq
"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium fonts-dejavu-core >/dev/null
