#!/usr/bin/env bash
# Installs what the tests of infra/aws need into a folder, at the versions
# pinned here and in infra/aws/package.json: Node, the CDK's command line,
# cfn-lint and shellcheck.
#
#   scripts/infra/install.sh FOLDER
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
exec bash "$here/../toolbox/install.sh" "${1:?the folder}" "$here/requirements.txt" "$here/../../infra/aws" cdk cfn-lint shellcheck
