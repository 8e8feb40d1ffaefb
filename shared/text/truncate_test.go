package text_test

import (
	"strings"
	"testing"

	"rollout/shared/text"
)

func TestTruncate(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, in string
		limit    int
		tail     string
		want     string
	}{
		{"empty", "", 3, "…", ""},
		{"shorter than the limit", "ab", 3, "…", "ab"},
		{"as long as the limit", "abc", 3, "…", "abc"},
		{"longer than the limit", "abcd", 3, "…", "abc…"},
		{"without a tail", "abcd", 3, "", "abc"},
		{"nothing fits", "abcd", 0, "…", "…"},
		{"ends after a character of two bytes", "aüb", 3, "…", "aü…"},
		{"ends within a character of two bytes", "aüb", 2, "…", "a…"},
		{"ends within a character of three bytes", "a日b", 3, "…", "a…"},
		{"ends within a character of four bytes", "a😀b", 4, "…", "a…"},
		{"the first character does not fit", "😀", 3, "…", "…"},
		{"invalid bytes stay", "a\xffbc", 3, "…", "a\xffb…"},
		{"invalid bytes within the limit", "a\xff", 3, "…", "a\xff"},
		{"continuation bytes alone", strings.Repeat("\x80", 100), 50, "…", strings.Repeat("\x80", 46) + "…"},
	} {
		if got := text.Truncate(c.in, c.limit, c.tail); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}
