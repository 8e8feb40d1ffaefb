#!/usr/bin/env bash
# Builds the provider of schemas into FOLDER/gcp, where OpenTofu looks for the provider
# google. It knows the types that infra/gcp has. install.sh and install_gcp.sh come before.
#
#   scripts/infra/provider_gcp.sh FOLDER
set -euo pipefail
folder=$(cd "${1:?the folder}" && pwd)
cd "$(dirname "$0")/../../infra/gcp"
go=${GO:-go}

platform=$("$go" env GOOS)_$("$go" env GOARCH)
provider=$folder/gcp/mirror/registry.opentofu.org/hashicorp/google/6.50.0/$platform
mkdir -p "$provider"
"$go" build -trimpath -o "$provider/terraform-provider-google" ./schemas
types=$({
  sed -n 's/^resource "\(google_[a-z0-9_]*\)".*/\1/p' ./*.tf
  sed -n 's/^data "\(google_[a-z0-9_]*\)".*/data.\1/p' ./*.tf
} | sort -u)
# shellcheck disable=SC2086 # one word for each type
"$folder/bin/node" ../../scripts/infra/schemas.mjs "$folder/gcp/schemas" $types >"$provider/schema.json"
