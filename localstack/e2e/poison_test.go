package e2e

import (
	"fmt"
	"strings"
	"testing"

	"rollout/localstack/scenarios"
	"rollout/shared/core/run"
)

// poisonedPrompts is a prompt file of a number of items, of which the items in
// poison crash the server.
func poisonedPrompts(items int, poison ...int) string {
	poisonous := map[int]bool{}
	for _, n := range poison {
		poisonous[n] = true
	}
	var b strings.Builder
	for n := range items {
		text := "a question"
		if poisonous[n] {
			text = "<die>"
		}
		fmt.Fprintf(&b, "{\"id\":\"item-%d\",\"prompt\":\"%s, number %d\"}\n", n, text, n)
	}
	return b.String()
}

// C22: the server crashes whenever one given prompt arrives, and its supervisor
// starts it again. Only that prompt is quarantined, all others are answered,
// and the number of crashes is bounded.
func TestC22OnlyThePoisonousPromptIsQuarantined(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		items, workers int
		poison         []int
		maxCrashes     int
	}{
		"one among ten thousand":           {10_000, 0, []int{6543}, 8},
		"two in one shard":                 {2000, 0, []int{1050, 1090}, 8},
		"three workers at the same server": {3000, 3, []int{1234}, 8},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := serveRestarting(t, "--die", "<die>", "--latency", "5ms")
			i := install(t, s.url, c.workers, "[worker]\nin_flight = 48\n")
			file := write(t, t.TempDir()+"/poisoned.jsonl", poisonedPrompts(c.items, c.poison...))
			id := i.submit(file)
			end := i.awaitEnd(id)
			if end.Phase != run.CompletedWithErrors || end.Message != "" && !strings.Contains(end.Message, "poison") {
				t.Errorf("the run ended as %s (%s)", end.Phase, end.Message)
			}
			o := i.outcome(id)
			if o.Summary.Completed != uint64(c.items-len(c.poison)) || o.Summary.Failed != uint64(len(c.poison)) ||
				len(o.Summary.FailedByClass) != 1 || o.Summary.FailedByClass["poison"] != len(c.poison) {
				t.Errorf("the summary says %+v", o.Summary)
			}
			errs := lines(t, o.Errors)
			if len(errs) != len(c.poison) {
				t.Fatalf("%d error rows, want %d: %s", len(errs), len(c.poison), errs)
			}
			for k, n := range c.poison {
				if !strings.Contains(errs[k], fmt.Sprintf(`"id":"item-%d"`, n)) || !strings.Contains(errs[k], `"class":"poison"`) {
					t.Errorf("error row %d is %s, want item %d", k, errs[k], n)
				}
			}
			if d := s.crashes(); d < 3 || d > c.maxCrashes {
				t.Errorf("the server crashed %d times, want 3 to %d:\n%s", d, c.maxCrashes, s.stdoutText())
			}
			t.Logf("the server crashed %d times", s.crashes())
		})
	}
}

// A server that crashes every few answers, and is started again by its
// supervisor, delays the run and changes no result.
func TestRepeatedServerCrashesOnlyDelayTheRun(t *testing.T) {
	t.Parallel()
	const items = 48
	file := promptsFile(t, scenarios.MixedPrompts(items))
	want := undisturbed(t, file)
	s := serveRestarting(t, "--die-after", "25", "--latency", "10ms")
	i := install(t, s.url, 0, smallShards)
	id := i.submit(file)
	if end := i.awaitEnd(id); string(end.Phase) != want.Summary.Phase {
		t.Errorf("the run ended as %s (%s), want %s", end.Phase, end.Message, want.Summary.Phase)
	}
	wantSame(t, i.outcome(id), want)
	if s.crashes() == 0 {
		t.Errorf("the server never crashed:\n%s", s.stdoutText())
	}
}
