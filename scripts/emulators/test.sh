#!/usr/bin/env bash
# Tests the cloud drivers against other emulators. If these cannot be installed,
# it reports that and succeeds; in CI it fails.
#
#   scripts/emulators/test.sh FOLDER TESTS
set -euo pipefail
cd "$(dirname "$0")/../.."

folder=${1:-out/emulators}
bash scripts/toolbox/need.sh test-emulators "the emulators" bash scripts/emulators/install.sh "$folder" || exit $(($? == 3 ? 0 : 1))
ROLLOUT_EMULATORS=$(cd "$folder" && pwd)
export ROLLOUT_EMULATORS
cd localstack/aws
"${GO:-go}" test -count=1 -timeout 10m -run "${2:?the tests to run}" ./...
