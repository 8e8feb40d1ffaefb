package run

import (
	"strings"
	"testing"
	"time"

	"rollout/shared/core/shard"
)

// limits.failed_share pauses a run of whose items more failed, once 100 have an outcome.
// After a resume the share counts anew.
func TestShareOfFailedItemsPausesTheRun(t *testing.T) {
	t.Parallel()
	now := time.Unix(1000, 0)
	w := Observed{Shards: 40, Items: 2000, Complete: true, Pool: 40, Workers: 1}
	rules := Rules{FailedShare: 0.1}
	s, _ := Step(New("r"), w, rules, nil, now)
	n := 0
	done := func(ok, failed int) {
		s, _ = Step(s, w, rules, []Event{{Kind: ShardDone, Shard: n, Counts: shard.Counts{OK: ok, Failed: failed}}}, now)
		n++
	}
	done(20, 30)
	if s.Phase != Running {
		t.Fatalf("after 50 items the run is %s", s.Phase)
	}
	done(50, 0)
	if s.Phase != Pausing || !strings.Contains(s.Message, "limits.failed_share is 0.1") {
		t.Fatalf("after 30 of 100 items failed the run is %s: %s", s.Phase, s.Message)
	}
	w.Sequence++
	w.DesiredPause = true
	s, _ = Step(s, w, rules, nil, now.Add(time.Minute))
	w.Sequence++
	w.DesiredPause = false
	s, _ = Step(s, w, rules, nil, now.Add(2*time.Minute))
	done(50, 0)
	done(41, 9)
	if s.Phase != Running {
		t.Fatalf("after 9 of 100 items failed since the resume the run is %s", s.Phase)
	}
	done(44, 6)
	done(40, 10)
	if s.Phase != Pausing {
		t.Errorf("after 25 of 200 items failed since the resume the run is %s", s.Phase)
	}
	rules.FailedShare = 0
	s, _ = Step(New("r"), w, rules, nil, now)
	n = 0
	done(0, 1000)
	if s.Phase != Running {
		t.Errorf("without the limit the run is %s", s.Phase)
	}
}
