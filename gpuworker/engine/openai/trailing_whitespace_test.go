package openai

import (
	"bytes"
	"testing"
	"unicode"
)

func TestTrimmedLenAgreesWithUnicode(t *testing.T) {
	t.Parallel()
	for _, tail := range []string{"", " ", "\n\t", "\u0085", "\xff", "\u2028 "} {
		for r := range rune(0x3100) {
			for _, text := range []string{string(r) + tail, "a" + string(r) + tail, " " + tail + string(r)} {
				if want, got := len(bytes.TrimRightFunc([]byte(text), unicode.IsSpace)), trimmedLen([]byte(text)); got != want {
					t.Fatalf("%q: %d, want %d", text, got, want)
				}
			}
		}
	}
}
