#!/usr/bin/env bash
# Deploys into emulators on this machine: the AWS stack with the CDK's own command, and what
# infra/gcp plans. It runs a batch and a rollout that learns through each: prompts and
# tickets go into the bucket, functions are processes, workers run beside them, and the
# files in the bucket are compared with those of local runs. It needs no account and cannot
# reach one: see localstack/aws/deploy_test.go and localstack/gcp/deployed. If the tools
# cannot be installed, it reports that and succeeds; in CI it fails.
#
#   scripts/deploylocal/deploylocal.sh FOLDER-OF-EMULATORS FOLDER-OF-INFRA [aws | gcp]
set -euo pipefail
cd "$(dirname "$0")/../.."

emulators=${1:-out/emulators} infra=${2:-out/infra} only=${3:-}
need() { bash scripts/toolbox/need.sh deploy-local "$@" || exit $(($? == 3 ? 0 : 1)); }
need "the CDK's command line" bash scripts/infra/install.sh "$infra"

deploy_gcp() {
  need OpenTofu bash scripts/infra/install_gcp.sh "$infra"
  bash scripts/infra/provider_gcp.sh "$infra"
  ROLLOUT_INFRA_GCP=$(cd "$infra/gcp" && pwd)
  export ROLLOUT_INFRA_GCP
  (cd localstack/gcp && "${GO:-go}" test -count=1 -timeout 10m -v \
    -run 'TestDeployLocal$|TestGrants$|TestGrantsOfTrainers$' ./deployed)
}

if [ "$only" != aws ]; then deploy_gcp; fi
if [ "$only" = gcp ]; then exit 0; fi

need "the emulator" bash scripts/emulators/install.sh "$emulators"
make --no-print-directory lambda LAMBDA_ARCH=amd64 LAMBDA_OUT=out/lambda-amd64
ROLLOUT_EMULATORS=$(cd "$emulators" && pwd)
ROLLOUT_INFRA=$(cd "$infra" && pwd)
ROLLOUT_LAMBDA=$PWD/out/lambda-amd64
export ROLLOUT_EMULATORS ROLLOUT_INFRA ROLLOUT_LAMBDA
cd localstack/aws
"${GO:-go}" test -count=1 -timeout 10m -v -run 'TestDeployLocal$' .
