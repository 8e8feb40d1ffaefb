#!/usr/bin/env bash
# Installs OpenAI's clients for Python and Node, and LiteLLM, into out/openaiclient, with the Node that
# theirs needs, at the versions of requirements.txt and package-lock.json.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
exec bash "$here/../../../scripts/toolbox/install.sh" "$here/../../../out/openaiclient" "$here/requirements.txt" "$here"
