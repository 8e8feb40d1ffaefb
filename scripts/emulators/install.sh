#!/usr/bin/env bash
# Installs the emulators that the cloud drivers are tested against into a folder,
# at the versions pinned here: ministack (all of AWS, Python), dynalite
# (DynamoDB) and fauxqs (SQS), with the Node that they need.
#
#   scripts/emulators/install.sh FOLDER
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
exec bash "$here/../toolbox/install.sh" "${1:?the folder}" "$here/requirements.txt" "$here" ministack
