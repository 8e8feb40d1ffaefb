package run

import (
	"testing"
	"time"
)

// A plan that was stuck when its run was stopped may yet go on: some of its
// events are late.
func TestTheFilesOfARunAreMadeOfThePlanAsItWasAtItsEnd(t *testing.T) {
	t.Parallel()
	s := New(testRun)
	s.Phase, s.Reason, s.Shards, s.Items = Finalizing, ReasonStopped, 3, 30
	next, _ := Step(s, Observed{Shards: 5, Items: 50, Complete: true}, Rules{}, []Event{{Kind: Wakeup}}, epoch)
	if next.Shards != 3 || next.Items != 30 || next.Complete {
		t.Errorf("%d shards, %d items, complete: %v", next.Shards, next.Items, next.Complete)
	}
}

// Who asks can ask less and less often for what never comes.
func TestARunCountsWhatItAskedForInVain(t *testing.T) {
	t.Parallel()
	s := New(testRun)
	for n := range 3 {
		s, _ = Step(s, Observed{Shards: 2}, Rules{}, []Event{{Kind: Wakeup}}, epoch.Add(time.Duration(n)*time.Hour))
	}
	if s.Retries != 2 { // with the first step the plan had got on
		t.Errorf("the plan was asked for %d times", s.Retries)
	}
	if s, _ = Step(s, Observed{Shards: 3}, Rules{}, []Event{{Kind: Reevaluate}}, epoch.Add(4*time.Hour)); s.Retries != 0 {
		t.Errorf("it gets on, and was asked for %d times", s.Retries)
	}
	s.Phase, s.Complete = Finalizing, true
	for range 3 {
		s, _ = Step(s, Observed{Shards: 5, Complete: true}, Rules{}, []Event{{Kind: Wakeup}}, epoch)
	}
	if s.Retries != 3 {
		t.Errorf("the files were asked for %d times", s.Retries)
	}
}
