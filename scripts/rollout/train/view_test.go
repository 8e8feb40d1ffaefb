package train

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"rollout/gpuworker/training"
)

// fakeClock is a clock that the test sets.
type fakeClock struct{ now time.Time }

func (c *fakeClock) Now() time.Time { return c.now }

func TestLinesAreWrittenEveryFiveSecondsAndAtTheEnd(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	clock := &fakeClock{time.Unix(1000, 0)}
	v := NewView(&out, "train sft", 10, 100, clock, false)
	for step := 11; step <= 100; step++ {
		clock.now = clock.now.Add(100 * time.Millisecond)
		v.Update(training.Report{Step: step, Steps: 100, Loss: 2.5, Tokens: 200})
	}
	v.Close()
	want := `train sft 11 of 100 steps, loss 2.5000, 2,000 tokens/s, ETA 9s
train sft 61 of 100 steps, loss 2.5000, 2,000 tokens/s, ETA 4s
train sft 100 of 100 steps, loss 2.5000, 2,000 tokens/s
`
	if out.String() != want {
		t.Errorf("got\n%s\nwant\n%s", out.String(), want)
	}
}

func TestBarEndsWithTheLastStep(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	clock := &fakeClock{time.Unix(1000, 0)}
	b := newBar(&out, "train rm", 0, 4, meter{clock: clock, began: clock.now}, false)
	for step := 1; step <= 4; step++ {
		clock.now = clock.now.Add(time.Second)
		b.Update(training.Report{Step: step, Steps: 4, Loss: 0.5, Tokens: 30})
	}
	b.Close()
	const want = "train rm [========================] 100%  4 of 4 steps, loss 0.5000, 30 tokens/s\n"
	if got := out.String(); !strings.Contains(got, want) {
		t.Errorf("got %q, want it to end with %q", got, want)
	}
}
