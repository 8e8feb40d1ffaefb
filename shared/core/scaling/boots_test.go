package scaling

import (
	"testing"
	"time"
)

func TestPausesBetweenBootsGrow(t *testing.T) {
	t.Parallel()
	minutes := func(n int) time.Time { return start.Add(time.Duration(n) * time.Minute) }
	var b Boots
	for _, step := range []struct {
		minute   int
		answered int // the minute in which a worker started that answered; 0 for a failed boot
		failures int
		retry    int // minute; -1 for no pause
	}{
		{10, 0, 1, 11},
		{10, 0, 1, 11}, // the same report again
		{20, 0, 2, 22},
		{21, 0, 2, 22}, // it booted beside the one before
		{40, 0, 3, 44},
		{60, 0, 4, 68},
		{90, 0, 5, 105},
		{110, 0, 6, 125},
		{111, 105, 6, 125}, // the worker started before the failure
		{130, 126, 0, -1},
		{140, 0, 1, 141},
		{202, 0, 1, 203}, // an hour later
		{230, 0, 2, 232},
	} {
		if step.answered > 0 {
			b, _ = b.Answered(minutes(step.answered))
		} else {
			b, _ = b.Failed(minutes(step.minute), "it broke", time.Minute, 0)
		}
		want := minutes(step.retry)
		if step.retry < 0 {
			want = time.Time{}
		}
		if b.Failures != step.failures || !b.RetryAt.Equal(want) {
			t.Fatalf("minute %d: %+v, want %d failures and a pause until %s", step.minute, b, step.failures, want)
		}
		if b.Waits(want) || step.retry > 0 && !b.Waits(want.Add(-1)) {
			t.Errorf("minute %d: the pause is not until %s", step.minute, want)
		}
	}
	if b = b.Forgiven(); b.Failures != 0 || b.Waits(minutes(231)) {
		t.Errorf("forgiven: %+v", b)
	}
	if _, again := b.Failed(minutes(230), "it broke", time.Minute, 0); again {
		t.Error("a report is counted again after it was forgiven")
	}
}

// Otherwise the pauses of machines that load a large model for an hour would never grow.
func TestPausesBetweenLongBootsGrow(t *testing.T) {
	t.Parallel()
	var b Boots
	at := start
	for n := 1; n <= 5; n++ {
		at = at.Add(90 * time.Minute)
		b, _ = b.Failed(at, "it broke", time.Minute, 90*time.Minute)
		if b.Failures != n {
			t.Fatalf("after %d boots of 90 minutes, %d failures are counted", n, b.Failures)
		}
		at = b.RetryAt
	}
	if b, _ = b.Failed(at.Add(151*time.Minute), "it broke", time.Minute, 90*time.Minute); b.Failures != 1 {
		t.Errorf("after a long time without a failure, %d are counted", b.Failures)
	}
}

func TestPauseFromAWrongClockStopsNoPool(t *testing.T) {
	t.Parallel()
	b, _ := Boots{}.Failed(start.AddDate(70, 0, 0), "it broke", time.Minute, 0)
	if b.Waits(start) {
		t.Errorf("it waits until %s", b.RetryAt)
	}
	if b.RetryAt = start.Add(maxPause); !b.Waits(start) {
		t.Error("the longest pause is none")
	}
}
