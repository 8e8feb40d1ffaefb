#!/usr/bin/env bash
# Tests infra/aws: synthesizes its stack and checks the template. Then it tests infra/gcp.
# If a tool cannot be installed, it reports that and succeeds; in CI it fails.
#
#   scripts/infra/test.sh FOLDER
set -euo pipefail
cd "$(dirname "$0")/../.."

folder=${1:-out/infra}
bash scripts/toolbox/need.sh test-infra "the CDK's command line" bash scripts/infra/install.sh "$folder" || exit $(($? == 3 ? 0 : 1))
ROLLOUT_INFRA=$(cd "$folder" && pwd)
export ROLLOUT_INFRA PATH="$ROLLOUT_INFRA/bin:$PATH"
(cd infra/aws && "${GO:-go}" vet ./... && "${GO:-go}" test -timeout 20m ./...)
bash scripts/infra/test_gcp.sh "$folder"
