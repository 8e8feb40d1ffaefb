#!/usr/bin/env bash
# Tests infra/gcp: plans its deployment without a project and without network, and checks the
# planned values. test.sh has installed Node into the folder. If OpenTofu cannot be installed,
# it reports that and succeeds; in CI it fails.
#
#   scripts/infra/test_gcp.sh FOLDER
set -euo pipefail
cd "$(dirname "$0")/../.."
go=${GO:-go}

folder=${1:?the folder}
bash scripts/toolbox/need.sh test-infra OpenTofu bash scripts/infra/install_gcp.sh "$folder" || exit $(($? == 3 ? 0 : 1))
folder=$(cd "$folder" && pwd)
export ROLLOUT_INFRA_GCP="$folder/gcp" PATH="$folder/bin:$PATH"

# The provider of schemas, where OpenTofu looks for the provider google. It knows the types
# that the configuration has.
platform=$("$go" env GOOS)_$("$go" env GOARCH)
provider=$ROLLOUT_INFRA_GCP/mirror/registry.opentofu.org/hashicorp/google/6.50.0/$platform
mkdir -p "$provider"
cd infra/gcp
"$go" vet ./...
"$go" build -trimpath -o "$provider/terraform-provider-google" ./schemas
types=$({
  sed -n 's/^resource "\(google_[a-z0-9_]*\)".*/\1/p' ./*.tf
  sed -n 's/^data "\(google_[a-z0-9_]*\)".*/data.\1/p' ./*.tf
} | sort -u)
# shellcheck disable=SC2086 # one word for each type
node ../../scripts/infra/schemas.mjs "$ROLLOUT_INFRA_GCP/schemas" $types >"$provider/schema.json"
TF_CLI_CONFIG_FILE=/dev/null "$ROLLOUT_INFRA_GCP/tofu" fmt -check -diff .
"$go" test -timeout 10m ./...
