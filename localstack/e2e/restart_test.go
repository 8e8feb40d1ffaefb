package e2e

import (
	"testing"
)

// An inference server that dies every few answers, and is started again by its
// supervisor, costs time and nothing else.
func TestAServerThatKeepsDyingOnlyCostsTime(t *testing.T) {
	t.Parallel()
	const items = 48
	file := promptsFile(t, mixedPrompts(items))
	want := undisturbed(t, file)
	s := serveAgain(t, "--die-after", "25", "--latency", "10ms")
	i := install(t, s.url, 0, smallBites)
	id := i.submit(file)
	if end := i.ends(id); string(end.Phase) != want.summary.Phase {
		t.Errorf("the run ended as %s (%s), want %s", end.Phase, end.Message, want.summary.Phase)
	}
	wantSame(t, i.outcome(id), want)
	if s.crashes() == 0 {
		t.Errorf("the server never died:\n%s", s.stdoutText())
	}
}
