package run

import "testing"

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
