#!/usr/bin/env bash
# Deploys the AWS stack into an emulator on this machine, with the CDK's own
# command, and runs a batch and a rollout that learns through it: prompts and
# tickets go into the bucket, functions are processes of the emulator, workers run
# beside it, and the files in the bucket are compared with those of local runs. It
# needs no account and cannot reach one: see localstack/aws/deploy_test.go. If the
# tools cannot be installed, it reports that and succeeds; in CI it fails.
#
#   scripts/deploylocal/deploylocal.sh FOLDER-OF-EMULATORS FOLDER-OF-INFRA
set -euo pipefail
cd "$(dirname "$0")/../.."

emulators=${1:-out/emulators} infra=${2:-out/infra}
bash scripts/toolbox/need.sh deploy-local "the emulator" bash scripts/emulators/install.sh "$emulators" || exit $(($? == 3 ? 0 : 1))
bash scripts/toolbox/need.sh deploy-local "the CDK's command line" bash scripts/infra/install.sh "$infra" || exit $(($? == 3 ? 0 : 1))
make --no-print-directory lambda LAMBDA_ARCH=amd64 LAMBDA_OUT=out/lambda-amd64
ROLLOUT_EMULATORS=$(cd "$emulators" && pwd)
ROLLOUT_INFRA=$(cd "$infra" && pwd)
ROLLOUT_LAMBDA=$PWD/out/lambda-amd64
export ROLLOUT_EMULATORS ROLLOUT_INFRA ROLLOUT_LAMBDA
cd localstack/aws
"${GO:-go}" test -count=1 -timeout 10m -v -run 'TestDeployLocal$' .
