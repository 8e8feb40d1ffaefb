#!/usr/bin/env bash
# Installs what the tests of infra/gcp need into FOLDER/gcp, at the versions pinned here:
# OpenTofu, built from Go modules, and the npm package that knows the arguments of Google
# Cloud's resources; and checkov into FOLDER/checkov. install.sh has put Node into
# FOLDER/bin, and has found Python. It takes minutes once, and nothing afterwards.
#
#   scripts/infra/install_gcp.sh FOLDER
set -euo pipefail
folder=${1:?the folder}
mkdir -p "$folder/gcp"
folder=$(cd "$folder" && pwd)
go=${GO:-go}

# Users have Terraform 1.5 or later. OpenTofu 1.6.3 has its syntax, and refuses that of later
# versions.
tofu=v1.6.3
schemas=@cdktf/provider-google@16.12.1 # the provider google 6.50.0
checksum=sha512-KqNA/5RiFT07r0PSZ6/07cJ2zESUgbj1JchVj21iBFBZVUbD+578xA/k8eq/r0cbyEgLmg9eYWeVslaYah4DCQ==
checkov=3.3.30
pins="$tofu $schemas $checkov $(cksum <"$0")"
if [ -f "$folder/gcp/installed" ] && [ "$(cat "$folder/gcp/installed")" = "$pins" ]; then
  exit 0
fi
rm -rf "${folder:?}/gcp" "${folder:?}/checkov"
mkdir -p "$folder/gcp/build" "$folder/gcp/schemas"

(cd "$folder/gcp/schemas" && bin=$(readlink -f "$folder/bin/node") &&
  "$bin" "$(dirname "$bin")/../lib/node_modules/npm/bin/npm-cli.js" pack --silent "$schemas" >/dev/null)
package=$(echo "$folder"/gcp/schemas/*.tgz)
have=sha512-$("$folder/bin/node" -e 'process.stdout.write(require("crypto").createHash("sha512").update(require("fs").readFileSync(process.argv[1])).digest("base64"))' "$package")
if [ "$have" != "$checksum" ]; then
  echo "install_gcp: $schemas has the checksum $have, want $checksum" >&2
  exit 1
fi
tar -xzf "$package" -C "$folder/gcp/schemas" --strip-components 1
rm "$package"

# A module of its own, because OpenTofu can't be installed as pkg@version: it replaces
# modules.
(cd "$folder/gcp/build" && "$go" mod init opentofu 2>/dev/null &&
  "$go" get -tool "github.com/opentofu/opentofu/cmd/tofu@$tofu" 2>/dev/null &&
  CGO_ENABLED=0 "$go" build -trimpath -ldflags='-s -w' -o "$folder/gcp/tofu" github.com/opentofu/opentofu/cmd/tofu)
rm -r "$folder/gcp/build"

# It has versions of its own of what other Python tools need.
"$folder/python/bin/python" -m venv "$folder/checkov"
"$folder/checkov/bin/python" -m pip install -q --disable-pip-version-check "checkov==$checkov"
echo "$pins" >"$folder/gcp/installed"
