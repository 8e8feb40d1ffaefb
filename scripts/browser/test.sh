#!/usr/bin/env bash
# Tests what a browser shows, with Debian's Chromium. If it cannot be installed, it
# reports that and succeeds; in CI it fails. Without axe-core, its test alone is skipped.
# Screenshots are in out/browser.
#
#   scripts/browser/test.sh
set -euo pipefail
cd "$(dirname "$0")/../.."

bash scripts/toolbox/need.sh test-browser "chromium" bash scripts/browser/install.sh || exit $(($? == 3 ? 0 : 1))
bash scripts/toolbox/need.sh test-browser "axe-core" bash scripts/browser/axe.sh || [ $? = 3 ]
cd localstack/browser
"${GO:-go}" test -count=1 -timeout 10m ./...
