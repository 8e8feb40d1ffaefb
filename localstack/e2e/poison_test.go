package e2e

import (
	"fmt"
	"strings"
	"testing"

	"rollout/shared/core/run"
)

// poisoned is a prompt file of so many items of which some kill the server.
func poisoned(items int, poison ...int) string {
	deadly := map[int]bool{}
	for _, n := range poison {
		deadly[n] = true
	}
	var b strings.Builder
	for n := range items {
		what := "a question"
		if deadly[n] {
			what = "<die>"
		}
		fmt.Fprintf(&b, "{\"id\":\"item-%d\",\"prompt\":\"%s, number %d\"}\n", n, what, n)
	}
	return b.String()
}

// C22: the server dies whenever one given prompt arrives, and is started anew
// by its supervisor. That prompt alone is quarantined, all others are answered,
// and the server dies a few times and no more.
func TestC22APoisonousPromptIsQuarantinedAlone(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		items, workers int
		poison         []int
		most           int // deaths
	}{
		"one among ten thousand":           {10_000, 0, []int{6543}, 8},
		"two in one shard":                 {2000, 0, []int{1050, 1090}, 8},
		"three workers at the same server": {3000, 3, []int{1234}, 8},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := serveAgain(t, "--die", "<die>", "--latency", "5ms")
			i := install(t, s.url, c.workers, "[worker]\nin_flight = 48\n")
			file := write(t, t.TempDir()+"/poisoned.jsonl", poisoned(c.items, c.poison...))
			id := i.submit(file)
			end := i.ends(id)
			if end.Phase != run.CompletedWithErrors || end.Message != "" && !strings.Contains(end.Message, "poison") {
				t.Errorf("the run ended as %s (%s)", end.Phase, end.Message)
			}
			o := i.outcome(id)
			if o.summary.Completed != uint64(c.items-len(c.poison)) || o.summary.Failed != uint64(len(c.poison)) ||
				len(o.summary.FailedByClass) != 1 || o.summary.FailedByClass["poison"] != len(c.poison) {
				t.Errorf("the summary says %+v", o.summary)
			}
			errs := lines(t, o.errors)
			if len(errs) != len(c.poison) {
				t.Fatalf("%d error lines: %s", len(errs), errs)
			}
			for k, n := range c.poison {
				if !strings.Contains(errs[k], fmt.Sprintf(`"id":"item-%d"`, n)) || !strings.Contains(errs[k], `"class":"poison"`) {
					t.Errorf("error line %d is %s, want item %d", k, errs[k], n)
				}
			}
			if d := s.crashes(); d < 3 || d > c.most {
				t.Errorf("the server died %d times, more than %d, or too few to be sure:\n%s", d, c.most, s.stdoutText())
			}
			t.Logf("the server died %d times", s.crashes())
		})
	}
}
