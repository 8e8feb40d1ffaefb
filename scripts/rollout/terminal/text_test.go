package terminal

import (
	"slices"
	"strings"
	"testing"
)

func TestLineIsTruncatedToTheTerminal(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]string{"short": "short", "0123456789": "0123456789", "0123456789A": "012345678…",
		"\x1b[31m0123456789\x1b[0m": "\x1b[31m0123456789\x1b[0m", "\x1b[31m0123456789A\x1b[0m": "012345678…",
		"日本語日本語": "日本語日…"} {
		if got := Fit(line, 10); got != want {
			t.Errorf("%q becomes %q, want %q", line, got, want)
		}
	}
}

func TestWrapBreaksOnlyAtSpaces(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		text    string
		columns int
		want    []string
	}{
		"no terminal":            {strings.Repeat("word ", 99), 0, []string{strings.Repeat("word ", 99)}},
		"fits":                   {"one two", 7, []string{"one two"}},
		"at a word":              {"one two three", 8, []string{"one two", "three"}},
		"a path stays whole":     {"see /data/runs/x.jsonl now", 12, []string{"see", "/data/runs/x.jsonl", "now"}},
		"a command stays whole":  {"then `rollout resume X` lets it", 20, []string{"then", "`rollout resume X`", "lets it"}},
		"a long command breaks":  {"(`rollout resume X -d` helps)", 14, []string{"(`rollout", "resume X -d`", "helps)"}},
		"an unpaired quote":      {"a ` b c d e f g", 7, []string{"a ` b c", "d e f g"}},
		"wide characters":        {"日本 語日 本語", 9, []string{"日本 語日", "本語"}},
		"colours take no column": {"\x1b[31mone\x1b[0m two", 7, []string{"\x1b[31mone\x1b[0m two"}},
		"spaces are kept":        {"  one  two", 12, []string{"  one  two"}},
	} {
		if got := Wrap(c.text, c.columns); !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

func TestSentencesIndentWhatTheyContinue(t *testing.T) {
	t.Parallel()
	const text = "the first sentence is long\nthe second"
	if got, want := Sentences(text, 22), "the first sentence\n  is long\nthe second"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := Sentences(text, 0); got != text {
		t.Errorf("without a terminal it becomes %q", got)
	}
}

func TestFactsStandBesideTheirLabels(t *testing.T) {
	t.Parallel()
	const want = "rate      one two three four\n          five\n"
	if got := Fact("rate", 10, "one two three four five", 30); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestNamesAreShortenedInTheirMiddle(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{"short": "short", "nightly-evaluation-a": "nigh…on-a"} {
		if got := Shorten(name, 9); got != want {
			t.Errorf("%s becomes %q, want %q", name, got, want)
		}
	}
}

func TestNamesThatDifferInTheirMiddleStayApart(t *testing.T) {
	t.Parallel()
	names := []string{"nightly-eval-a-2026-03-01", "nightly-eval-b-2026-03-01", "weekly", "nightly-eval-b-2026-03-01"}
	want := []string{"nigh…a-2026-03-…", "nigh…b-2026-03-…", "weekly", "nigh…b-2026-03-…"}
	if got := ShortenApart(names, 16); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := ShortenApart([]string{"日本語日本語a日本語日本語", "日本語日本語b日本語日本語"}, 9); got[0] == got[1] {
		t.Errorf("both become %q", got[0])
	}
	apart := []string{"experiment-a-of-the-night-1-by-day", "experiment-b-of-the-night-1-by-day",
		"experiment-b-of-the-night-2-by-day", "experiment-b-of-the-night-1-by-day", "experiment-b-of-the-night-3-by-day"}
	want = []string{"exp…a-of-the…", "exp…b-of-the…", "exp…b-of-th…2", "exp…b-of-the…", "exp…b-of-th…3"}
	if got := ShortenApart(apart, 13); !slices.Equal(got, want) {
		t.Errorf("names that differ in two places become %q, want %q", got, want)
	}
	same := []string{"one-and-the-same-long-name", "one-and-the-same-long-name"}
	if got := ShortenApart(same, 9); got[0] != "one-…name" {
		t.Errorf("one name becomes %q", got)
	}
}
