package worker

import (
	"slices"
	"testing"
	"time"
)

func TestEndsWithin(t *testing.T) {
	t.Parallel()
	many := func(n int, each time.Duration) []time.Duration { return slices.Repeat([]time.Duration{each}, n) }
	for name, c := range map[string]struct {
		durations     []time.Duration
		elapsed, left time.Duration
		want          bool
	}{
		"nothing known, young request":         {nil, 20 * time.Second, time.Minute, true},
		"nothing known, old request":           {nil, 2 * time.Minute, time.Minute, false},
		"no time left":                         {nil, 0, 0, false},
		"others took ten minutes":              {many(20, 10*time.Minute), time.Minute, time.Minute, false},
		"others took ten minutes, nearly over": {many(20, 10*time.Minute), 570 * time.Second, time.Minute, true},
		"others were quick":                    {many(20, 2*time.Second), time.Second, time.Minute, true},
		"others were quick, this one hangs":    {many(20, 2*time.Second), 10 * time.Minute, time.Minute, false},
		"a few others ended in time": {
			append(many(18, 10*time.Minute), many(2, time.Minute)...), time.Second, time.Minute, true},
		"too few took longer than this one so far": {
			append(many(20, time.Second), 10*time.Minute), 50 * time.Second, time.Minute, true},
	} {
		if got := endsWithin(c.durations, c.elapsed, c.left); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func TestInFlightHasOnlyRequestsThatHaveNotEnded(t *testing.T) {
	t.Parallel()
	var f inFlight
	start := time.Now()
	a := f.begin(start)
	b := f.begin(start.Add(time.Second))
	f.end(a)
	c := f.begin(start.Add(2 * time.Second))
	var ages []time.Duration
	f.any(start.Add(3*time.Second), func(d time.Duration) bool { ages = append(ages, d); return false })
	slices.Sort(ages)
	if !slices.Equal(ages, []time.Duration{time.Second, 2 * time.Second}) {
		t.Errorf("in flight for %v", ages)
	}
	f.end(b)
	f.end(c)
	if f.any(start, func(time.Duration) bool { return true }) {
		t.Error("a request is in flight after all have ended")
	}
}
