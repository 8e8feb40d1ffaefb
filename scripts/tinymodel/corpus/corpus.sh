#!/usr/bin/env bash
# Makes the corpus and the tokenizer of the shipped model in out/model.
#
# The Bible comes from Debian's package bible-kjv-text: from the file bible.data
# that BIBLE names, or from the installed package, or else from the package that
# this script downloads without installing it. The Opticks comes from Go's source
# tree.
set -euo pipefail
cd "$(dirname "$0")/../../.."

go=${GO:-go}
out=out/model
mkdir -p "$out"
bible=${BIBLE:-}
for f in /usr/lib/bible.data "$out/bible/usr/lib/bible.data"; do
  [ -n "$bible" ] || [ ! -f "$f" ] || bible=$f
done
if [ -z "$bible" ]; then
  command -v apt-get >/dev/null && command -v dpkg-deb >/dev/null || {
    echo "model-corpus: found no bible.data, and no apt-get to download it: download the Debian package bible-kjv-text, and set BIBLE to its usr/lib/bible.data" >&2
    exit 1
  }
  (cd "$out" && apt-get -o APT::Sandbox::User=root download -qq bible-kjv-text && dpkg-deb -x bible-kjv-text_*.deb bible)
  bible=$out/bible/usr/lib/bible.data
fi
"$go" run ./scripts/tinymodel corpus --bible "$bible" --opticks "$("$go" env GOROOT)/src/testdata/Isaac.Newton-Opticks.txt" --out "$out"
"$go" run ./scripts/tinymodel tokenizer --corpus "$out/learn.jsonl" --out "$out/tokenizer.txt"
