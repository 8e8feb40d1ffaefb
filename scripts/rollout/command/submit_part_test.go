package command_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestPartsOfAFileAreCheckedBeforeAnythingStarts(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	file := f.file("x.jsonl", "{\"prompt\":\"hi\"}\n{\"prompt\":\"ho\"}\n")
	for args, want := range map[string]string{
		"--sample 1":                                "a part of a file has 2 to 100,000 lines",
		"--limit -3":                                "a part of a file has 2 to 100,000 lines",
		"--sample 0":                                "a part of a file has 2 to 100,000 lines",
		"--sample 5 --limit 5":                      "use one of them",
		"--seed 4":                                  "--seed is that of --sample",
		"--sample 5 --dry-run":                      "--dry-run checks every line and asks none",
		"--sample 5 --set sampling.top_p=2":         "sampling.top_p",
		"--limit 5 --set kind=rollout":              "mission",
		"--sample 5 --set input.dialect=vertex":     "has no line that a run can ask",
		"--sample 5 --json --set shard.items=99999": "shard.items",
	} {
		r := f.rollout(append([]string{"submit", file}, strings.Fields(args)...)...)
		if r.code != 2 || !strings.Contains(r.err, want) || r.out != "" {
			t.Errorf("%s: %+v, want %q", args, r, want)
		}
	}
	if left, err := os.ReadDir(filepath.Join(f.dir, "bucket", "prompts")); err == nil && len(left) > 0 {
		t.Errorf("the bucket has %v", left)
	}
}
