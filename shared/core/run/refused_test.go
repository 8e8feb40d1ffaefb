package run

import (
	"testing"
	"time"
)

// A worker's own server may be at fault, or its report may be late: while another worker has
// answers, the run goes on.
func TestRefusalDoesNotPauseWhileAnotherWorkerHasAnswers(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		ago  time.Duration // since the last answer
		want Phase
	}{{0, Running}, {59 * time.Second, Running}, {time.Minute, Pausing}} {
		world := Observed{Shards: 3, Items: 3, Complete: true, Pool: 100}
		s, _ := Step(New(testRun), world, Rules{}, nil, epoch)
		refused := Event{Kind: RequestsRefused, Why: "status 401", AnsweredAt: epoch}
		s, _ = Step(s, world, Rules{}, []Event{refused}, epoch.Add(c.ago))
		if s.Phase != c.want || (len(s.Effects) > 0) != (c.want == Pausing) {
			t.Errorf("%s after an answer: the run is %s, want %s; effects %v", c.ago, s.Phase, c.want, s.Effects)
		}
	}
}

// A late duplicate of a refusal must not pause a run again that was resumed since.
func TestRefusalFromBeforeAResumeDoesNotPause(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		met  uint64 // the sequence under which requests were refused
		want Phase
	}{{0, Running}, {2, Running}, {3, Pausing}, {4, Pausing}} {
		world := Observed{Shards: 3, Items: 3, Complete: true, Pool: 100, Sequence: 3}
		s, _ := Step(New(testRun), world, Rules{}, nil, epoch)
		s, _ = Step(s, world, Rules{}, []Event{{Kind: RequestsRefused, Why: "status 401", Control: c.met}}, epoch)
		if s.Phase != c.want {
			t.Errorf("met under %d: the run is %s, want %s", c.met, s.Phase, c.want)
		}
	}
}
