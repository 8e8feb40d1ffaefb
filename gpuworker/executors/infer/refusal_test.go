package infer

import (
	"errors"
	"testing"
	"time"

	"rollout/shared/fault"
)

func TestRefusalMakesEngineUnavailableUntilNextTry(t *testing.T) {
	t.Parallel()
	start := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	at := func(d time.Duration) time.Time { return start.Add(d) }
	busy := errors.New("429")
	var r refusal
	for _, c := range []struct {
		at   time.Duration
		hint time.Duration
		want time.Duration // that all requests were refused
	}{
		{0, 0, 0}, {2 * time.Minute, 0, 2 * time.Minute}, {6 * time.Minute, 2 * time.Minute, 6 * time.Minute},
	} {
		if err := r.unavailable(at(c.at)); err != nil {
			t.Errorf("at %s: %v", c.at, err)
		}
		if got := r.refused(at(c.at), c.hint, busy); got != c.want {
			t.Errorf("at %s all requests are refused for %s, want %s", c.at, got, c.want)
		}
	}
	for after, want := range map[time.Duration]bool{
		6 * time.Minute: true, 8*time.Minute - 1: true, 8 * time.Minute: false,
	} {
		err := r.unavailable(at(after))
		if (err != nil) != want || want && (!fault.Is(err, fault.Unavailable) || !errors.Is(err, busy)) {
			t.Errorf("at %s: %v", after, err)
		}
	}
	if got := r.refused(at(8*time.Minute), 0, busy); got != 8*time.Minute || r.unavailable(at(8*time.Minute)) == nil {
		t.Errorf("refused again: all requests refused for %s", got)
	}
	if got := r.refused(at(time.Hour), 0, busy); got != 0 {
		t.Errorf("refused after an hour without requests: all requests refused for %s", got)
	}
	r.refused(at(time.Hour+6*time.Minute), 0, busy)
	r.answered()
	if err := r.unavailable(at(time.Hour + 6*time.Minute)); err != nil {
		t.Errorf("after an answer: %v", err)
	}
	if got := r.refused(at(time.Hour+7*time.Minute), 0, busy); got != 0 {
		t.Errorf("refused after an answer: all requests refused for %s", got)
	}
}
