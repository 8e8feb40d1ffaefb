package run

import "testing"

// A plan that was stuck when its run was stopped may yet go on: some of its
// events are late.
func TestTheFilesOfARunAreMadeOfThePlanAsItWasAtItsEnd(t *testing.T) {
	t.Parallel()
	s := New(testRun)
	s.Phase, s.Reason, s.Shards, s.Items = Finalizing, ReasonStopped, 3, 30
	next, _ := Step(s, World{Shards: 5, Items: 50, Complete: true}, Rules{}, []Event{{Kind: Ring}}, epoch)
	if next.Shards != 3 || next.Items != 30 || next.Complete {
		t.Errorf("%d shards, %d items, complete: %v", next.Shards, next.Items, next.Complete)
	}
}
