package blob_test

import (
	"strings"
	"testing"

	"rollout/shared/blob"
	"rollout/shared/fault"
)

func TestCheckKeyAcceptsKeysOfEveryStore(t *testing.T) {
	t.Parallel()
	for _, key := range []string{
		"a", "prompts/nightly.jsonl", "prompts/my prompts.jsonl", "a+b", "a%2Bb", "日本 語", "a&b=c?",
		"a..b/c.", "cas/ab/cd/abcd", `back\slash`, "-rf", "~", "*",
		strings.Repeat("a", 255), strings.Repeat("a", 255) + "/" + strings.Repeat("b", 255), strings.Repeat("語", 85),
	} {
		if err := blob.CheckKey(key); err != nil {
			t.Errorf("CheckKey(%q) = %v", key, err)
		}
	}
}

func TestCheckKeyRefusesHostileKeys(t *testing.T) {
	t.Parallel()
	for _, key := range []string{
		"", "/", "/etc/passwd", "a/", "a//b", "//", ".", "..", "../x", "a/../b", "a/..", "a/./b", "a/.hidden", ".rollout/x",
		"a\x00b", "a\nb", "a\x7f", "a\u0085b", "a\xff", "\xed\xa0\x80",
		strings.Repeat("a", 256), "a/" + strings.Repeat("b", 256), strings.Repeat("a/", 256) + "a",
	} {
		err := blob.CheckKey(key)
		if !fault.Is(err, fault.Invalid) {
			t.Errorf("CheckKey(%q) = %v, want Invalid", key, err)
		} else if strings.ContainsAny(err.Error(), "\x00\n\x7f") {
			t.Errorf("CheckKey(%q) prints control characters: %q", key, err)
		}
	}
}

func TestCheckPrefixAcceptsPartialKeys(t *testing.T) {
	t.Parallel()
	for prefix, ok := range map[string]bool{
		"": true, "a": true, "a/": true, "prompts/ni": true, "/": false,
		"a//": false, "../": false, "a/.": false, "a\x00": false,
	} {
		if err := blob.CheckPrefix(prefix); (err == nil) != ok {
			t.Errorf("CheckPrefix(%q) = %v, want ok=%v", prefix, err, ok)
		}
	}
}

func TestRangeSlice(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		offset, length, size   int64
		wantOffset, wantLength int64
		ok                     bool
	}{
		{0, 0, 10, 0, 10, true},
		{4, 0, 10, 4, 6, true},
		{4, 6, 10, 4, 6, true},
		{10, 0, 10, 10, 0, true},
		{0, 0, 0, 0, 0, true},
		{4, 7, 10, 0, 0, false},
		{11, 0, 10, 0, 0, false},
		{1, 1<<63 - 1, 10, 0, 0, false},
	} {
		offset, length, err := blob.Range{Key: "k", Offset: c.offset, Length: c.length}.Resolve(c.size)
		if (err == nil) != c.ok || offset != c.wantOffset || length != c.wantLength {
			t.Errorf("%+v: got %d, %d, %v", c, offset, length, err)
		}
	}
}
