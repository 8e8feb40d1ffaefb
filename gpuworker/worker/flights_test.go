package worker

import (
	"slices"
	"testing"
	"time"
)

func TestHowManyRequestsWillEndInTime(t *testing.T) {
	t.Parallel()
	many := func(n int, each time.Duration) []time.Duration { return slices.Repeat([]time.Duration{each}, n) }
	for name, c := range map[string]struct {
		known         []time.Duration
		elapsed, left time.Duration
		want          bool
	}{
		"nothing is known of a young one":            {nil, 20 * time.Second, time.Minute, true},
		"nothing is known of an old one":             {nil, 2 * time.Minute, time.Minute, false},
		"no time is left":                            {nil, 0, 0, false},
		"its like took ten minutes":                  {many(20, 10*time.Minute), time.Minute, time.Minute, false},
		"its like took ten minutes, and it is near":  {many(20, 10*time.Minute), 570 * time.Second, time.Minute, true},
		"its like are quick":                         {many(20, 2*time.Second), time.Second, time.Minute, true},
		"its like are quick, and it hangs":           {many(20, 2*time.Second), 10 * time.Minute, time.Minute, false},
		"a few of its like end in time":              {append(many(18, 10*time.Minute), many(2, time.Minute)...), time.Second, time.Minute, true},
		"too few are known that took longer than it": {append(many(20, time.Second), 10*time.Minute), 50 * time.Second, time.Minute, true},
	} {
		if got := endsWithin(c.known, c.elapsed, c.left); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func TestFlightsAreThoseThatHaveNotEnded(t *testing.T) {
	t.Parallel()
	var f flights
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
		t.Error("one is in flight")
	}
}
