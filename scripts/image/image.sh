#!/usr/bin/env bash
# Builds the worker's image with Docker, or with Podman if Docker does not work.
#
#   scripts/image/image.sh NAME ARCHITECTURE
set -euo pipefail
cd "$(dirname "$0")/../.."
name=${1:?the name} arch=${2:?the architecture}

for program in docker podman; do
  if "$program" info >/dev/null 2>&1; then
    "$program" build --platform "linux/$arch" --tag "$name" .
    "$program" image inspect --format "built $name: {{.Size}} bytes" "$name"
    exit 0
  fi
done
echo "image: neither Docker nor Podman works here: install one of them, or run the worker without a container: CGO_ENABLED=0 go build -o bin/gpuworker ./gpuworker" >&2
exit 1
