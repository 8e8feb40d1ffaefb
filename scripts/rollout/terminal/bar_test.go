package terminal

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var rewrite = flag.Bool("rewrite", false, "write the pictures anew")

func TestBarShowsItsShare(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		part, failed, all uint64
		want              string
	}{{0, 0, 0, "[        ]"}, {0, 0, 10, "[        ]"}, {5, 0, 10, "[===>    ]"}, {10, 0, 10, "[========]"},
		{20, 0, 10, "[========]"}, {5, 5, 10, "[xxxx    ]"}, {10, 10, 10, "[xxxxxxxx]"}, {9, 1, 1000, "[        ]"},
		{800, 1, 1000, "[====x>  ]"}} {
		if got := Bar(c.part, c.failed, c.all, 10); got != c.want {
			t.Errorf("%d of %d: %q, want %q", c.part, c.all, got, c.want)
		}
	}
}

// pictured are the tasks of the pictures.
var pictured = []struct {
	name string
	task Task
}{
	{"a run", Task{Name: "nightly running", Done: 642_000, Failed: 1_200, All: 2_000_000,
		Facts: []string{"642,000 of 2,000,000", "1,200 failed", "1,235/s", "ETA 18m21s"}}},
	{"a run with a long name", Task{Name: "nightly-evaluation-of-t… completed with errors", Done: 5, Failed: 1, All: 5,
		Facts: []string{"5 of 5", "1 failed"}}},
	{"all failed", Task{Name: "broken completed with errors", Done: 500, Failed: 500, All: 500,
		Facts: []string{"500 of 500", "500 failed", "50.0/s"}}},
	{"not begun", Task{Name: "waiting for the run to begin"}},
	{"without a total", Task{Name: "nightly planning", Facts: []string{"1,235/s"}}},
	{"a transfer", Task{Name: "prompts.jsonl", Done: 12 << 20, All: 46 << 20,
		Facts: []string{"12 MiB of 46 MiB", "3.4 MiB/s", "ETA 10s"}}},
	{"a training", Task{Name: "train sft", Done: 120, All: 1_000,
		Facts: []string{"120 of 1,000 steps", "loss 2.3456", "4,512 tokens/s", "ETA 3m05s"}}},
	{"a training that has not taken a step", Task{Name: "train sft", All: 1_000}},
}

// Each picture has all tasks at one width; -rewrite writes them anew.
func TestTasksLookAsPictured(t *testing.T) {
	t.Parallel()
	for _, columns := range []int{60, 80, 120, 200} {
		for _, colours := range []bool{false, true} {
			var b strings.Builder
			for _, p := range pictured {
				fmt.Fprintf(&b, "== %s\n", p.name)
				for _, line := range p.task.Lines(columns, Palette(colours)) {
					if n := Width(line); n > columns {
						t.Errorf("%s at %d columns has a line of %d: %s", p.name, columns, n, line)
					}
					b.WriteString(strings.ReplaceAll(line, "\x1b", "ESC") + "\n")
				}
			}
			path := filepath.Join("testdata", fmt.Sprintf("%d.txt", columns))
			if colours {
				path = filepath.Join("testdata", fmt.Sprintf("%d-colours.txt", columns))
			}
			if *rewrite {
				if err := os.WriteFile(path, []byte(b.String()), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(path)
			if err != nil || string(want) != b.String() {
				t.Errorf("the tasks are not those of %s (-rewrite writes it), %v:\n%s", path, err, b.String())
			}
		}
	}
}
