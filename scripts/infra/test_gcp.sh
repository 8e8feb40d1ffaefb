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

GO="$go" bash scripts/infra/provider_gcp.sh "$folder"
cd infra/gcp
"$go" vet ./...
TF_CLI_CONFIG_FILE=/dev/null "$ROLLOUT_INFRA_GCP/tofu" fmt -check -diff .
"$go" test -timeout 20m ./...
