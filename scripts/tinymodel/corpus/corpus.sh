#!/usr/bin/env bash
# Makes the corpus and the tokenizer of the shipped model in out/model. The Bible
# is taken out of Debian's package bible-kjv-text, which is fetched, not
# installed, unless BIBLE names its bible.data; the Opticks out of Go's own tree.
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
    echo "model-corpus: no bible.data here, and no apt-get to fetch it with: get the Debian package bible-kjv-text, and name its usr/lib/bible.data with BIBLE=" >&2
    exit 1
  }
  (cd "$out" && apt-get -o APT::Sandbox::User=root download -qq bible-kjv-text && dpkg-deb -x bible-kjv-text_*.deb bible)
  bible=$out/bible/usr/lib/bible.data
fi
"$go" run ./scripts/tinymodel corpus --bible "$bible" --opticks "$("$go" env GOROOT)/src/testdata/Isaac.Newton-Opticks.txt" --out "$out"
"$go" run ./scripts/tinymodel tokenizer --corpus "$out/learn.jsonl" --out "$out/tokenizer.txt"
