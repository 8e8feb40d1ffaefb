package text_test

import (
	"os/exec"
	"testing"

	"rollout/shared/text"
)

func TestShellPathQuotesWhatAShellWouldRead(t *testing.T) {
	t.Parallel()
	for path, want := range map[string]string{
		"a/nightly-2.jsonl": "a/nightly-2.jsonl",
		"a b.jsonl":         "'a b.jsonl'",
		"it's.jsonl":        `'it'\''s.jsonl'`,
		"-x.jsonl":          "./-x.jsonl",
		"-x y.jsonl":        "'./-x y.jsonl'",
		"~/x.jsonl":         "'~/x.jsonl'",
		"":                  "''",
	} {
		if got := text.ShellPath(path); got != want {
			t.Errorf("%q is %s, want %s", path, got, want)
		}
	}
}

func TestAShellReadsTheQuotedWordAsItWas(t *testing.T) {
	t.Parallel()
	for _, word := range []string{"", "a", "a b", "$HOME `id` \\ \"", "it's", "*?[a]", "a\nb", "ü;&|<>(){}#!"} {
		got, err := exec.CommandContext(t.Context(), "sh", "-c", "printf %s "+text.ShellWord(word)).Output()
		if err != nil || string(got) != word {
			t.Errorf("%q is read as %q, %v", word, got, err)
		}
	}
}
