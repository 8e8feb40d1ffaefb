package jsonl_test

import (
	"strings"
	"testing"
	"unicode/utf16"

	"rollout/shared/fault"
	"rollout/shared/jsonl"
)

// wide encodes s as UTF-16.
func wide(s string, little bool) string {
	var b []byte
	for _, u := range utf16.Encode([]rune(s)) {
		if little {
			b = append(b, byte(u), byte(u>>8))
		} else {
			b = append(b, byte(u>>8), byte(u))
		}
	}
	return string(b)
}

func TestC02OtherFormatsAreRejectedByName(t *testing.T) {
	t.Parallel()
	const line = `{"prompt":"a"}` + "\n"
	for _, c := range []struct{ name, head string }{
		{"UTF-16LE", "\xFF\xFE" + wide(line, true)},
		{"UTF-16BE", "\xFE\xFF" + wide(line, false)},
		{"UTF-16LE", wide(line, true)},
		{"UTF-16BE", wide(line, false)},
		{"UTF-32LE", "\xFF\xFE\x00\x00{\x00\x00\x00"},
		{"UTF-32BE", "\x00\x00\xFE\xFF\x00\x00\x00{"},
		{"UTF-32LE", "{\x00\x00\x00\"\x00\x00\x00"},
		{"UTF-32BE", "\x00\x00\x00{\x00\x00\x00\""},
		{"gzip", "\x1F\x8B\x08\x00"},
		{"zstd", "\x28\xB5\x2F\xFD\x04"},
		{"bzip2", "BZh91AY&SY"},
		{"zip", "PK\x03\x04"},
	} {
		err := jsonl.Sniff([]byte(c.head))
		if err == nil || !strings.Contains(err.Error(), c.name) || !fault.Is(err, fault.Invalid) {
			t.Errorf("Sniff(%q) = %v, want an error that names %s", c.head, err, c.name)
		}
	}
	for _, head := range []string{"", "\n", "{", "\xEF\xBB\xBF" + line, line, "[1,2,3]\n", "日本\n", "BOM"} {
		if err := jsonl.Sniff([]byte(head)); err != nil {
			t.Errorf("Sniff(%q) = %v", head, err)
		}
	}
}
