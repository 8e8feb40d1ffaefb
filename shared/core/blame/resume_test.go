package blame

import (
	"testing"
	"time"
)

// A run that is resumed after a refusal is asked anew: if it meets the same outcome,
// its items are charged; if the setting is mended, all are answered.
func TestResumedRunIsChargedOrAnswered(t *testing.T) {
	t.Parallel()
	for _, mended := range []bool{false, true} {
		w := newWorld(1, 50, 16, "a")
		w.outcome = except(func(string, int, time.Duration) bool { return !mended }, "status_401", time.Millisecond)
		w.ledger.Begin("run", 2, "status_401", false)
		w.ledger.Begin("run", 2, "status_401", false) // by another shard
		w.schedule()
		w.run(time.Hour)
		answered, charged := w.count()
		if w.refused != nil || mended && answered != 50 || !mended && charged != 50 {
			t.Errorf("mended %v: %d answered, %d charged, refused %v", mended, answered, charged, w.refused)
		}
	}
}

// A resumed run charges an item only when all servers have failed it: the one that meets
// the earlier outcome may be bad for itself.
func TestResumedRunChargesNoItemThatAnotherServerAnswers(t *testing.T) {
	t.Parallel()
	for seed := range uint64(20) {
		w := newWorld(seed, 50, 1+int(seed), two...)
		w.outcome = func(server string, item int, _ time.Duration) (Outcome, time.Duration) {
			switch {
			case server == "b":
				return "corrupt", time.Millisecond
			case item < 0 || item >= 6:
				return Answered, time.Second
			}
			return "status_500", usual // the first items are at fault themselves
		}
		w.ledger.Begin("run", 2, "corrupt", false)
		w.schedule()
		w.run(time.Hour)
		if answered, charged := w.count(); w.refused != nil || answered != 44 || charged != 6 {
			t.Errorf("seed %d: %d answered, %d charged, refused %+v", seed, answered, charged, w.refused)
		}
	}
}

// One that is away for good counts no more after five minutes, and gets few requests
// until then.
func TestResumedRunHasAnEndThoughOneServerIsAway(t *testing.T) {
	t.Parallel()
	for seed := range uint64(20) {
		w := newWorld(seed, 50, 1+int(seed), two...)
		w.outcome = func(server string, _ int, _ time.Duration) (Outcome, time.Duration) {
			if server == "b" {
				return hangs, time.Millisecond
			}
			return "status_500", usual
		}
		w.ledger.Begin("run", 2, "status_500", false)
		w.schedule()
		took := w.run(time.Hour)
		if _, charged := w.count(); w.refused != nil || charged != 50 || took > 2*maxUnknown || w.requests() > 700 {
			t.Errorf("seed %d: %d charged, refused %+v, after %s and %d requests", seed, charged, w.refused, took, w.requests())
		}
	}
}

// A worker that has not refused a run itself, and met what another one refused it for,
// begins anew when it is resumed.
func TestFailuresBeforeAResumeRefuseNoRun(t *testing.T) {
	t.Parallel()
	l, now := New("a"), time.Unix(0, 0)
	l.Begin("run", 1, "", false)
	l.Answered(l.Admit(Item{"run", 0}, &Evidence{}, true, now).Request, "a", now)
	now = now.Add(time.Second)
	denied := Failure{Outcome: "status_401", Nature: Setting}
	l.Failed(l.Admit(Item{"run", 1}, &Evidence{}, true, now).Request, "a", denied, now)
	for range 50 {
		now = now.Add(time.Second)
		l.Failed(l.Compare("a", "run", now), "a", denied, now)
	}
	now = now.Add(WithoutAnswer / 3)
	l.Begin("run", 3, "status_401", true)
	if a := l.Admit(Item{"run", 2}, &Evidence{}, true, now); a.Refused != nil {
		t.Errorf("refused %+v", a.Refused)
	}
}

// A refused run that does not pause, as another worker has answers, goes on here when that
// is known.
func TestRefusedRunThatIsNotPausedIsLookedUp(t *testing.T) {
	t.Parallel()
	w := newWorld(1, 50, 16, "a")
	w.outcome = except(func(string, int, time.Duration) bool { return true }, "status_401", time.Millisecond)
	w.run(time.Hour)
	admit := func() Admission { return w.ledger.Admit(Item{"run", 1}, &Evidence{}, true, w.now) }
	if a := admit(); a.Refused == nil {
		t.Fatalf("before: %+v", a)
	}
	w.ledger.NotPaused("run")
	if a := admit(); a.Refused != nil || !a.LookUp {
		t.Fatalf("not paused: %+v", a)
	}
	w.ledger.LookedUp("run", true)
	if a := admit(); a.Refused != nil || !a.Go {
		t.Errorf("answered elsewhere: %+v", a)
	}
}

func TestRefusedRunStaysRefusedUntilItIsResumed(t *testing.T) {
	t.Parallel()
	w := newWorld(1, 50, 16, "a")
	w.outcome = except(func(string, int, time.Duration) bool { return true }, "status_401", time.Millisecond)
	w.run(time.Hour)
	if w.refused == nil || w.refused.Outcome != "status_401" || w.refused.Server != "a" || w.refused.Words != "no" {
		t.Fatalf("refused %+v", w.refused)
	}
	w.ledger.Begin("run", 1, "", false)
	if a := w.ledger.Admit(Item{"run", 1}, &Evidence{}, true, w.now); a.Refused == nil || a.Go {
		t.Errorf("before the resume: %+v", a)
	}
	w.ledger.Begin("run", 3, "status_401", false)
	if a := w.ledger.Admit(Item{"run", 1}, &Evidence{}, true, w.now); a.Refused != nil || !a.Go {
		t.Errorf("after the resume: %+v", a)
	}
}
