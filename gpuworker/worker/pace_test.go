package worker

import (
	"testing"
	"time"
)

// The pace is the number of items that the engine begins in the time of two
// claims, or in 150 ms.
func TestPaceAhead(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		every  time.Duration // between items
		items  int
		claims []time.Duration
		lo, hi int
	}{
		"nothing measured":             {0, 0, nil, 0, 0},
		"no claim measured":            {time.Millisecond, 1000, nil, 145, 151},
		"no item begun":                {0, 0, []time.Duration{time.Second}, 0, 0},
		"slow engine and quick claims": {time.Second, 30, repeat(10*time.Millisecond, 30), 0, 0},
		"fast engine":                  {time.Millisecond, 2000, repeat(10*time.Millisecond, 50), 145, 151},
		"fast engine and slow claims":  {time.Millisecond, 2000, repeat(time.Second, 50), 1900, 2050},
		"one slow claim among quick ones": {time.Millisecond, 2000,
			append(repeat(100*time.Millisecond, 50), 300*time.Millisecond), 270, 290},
	} {
		var p pace
		now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
		for range c.items {
			p.began(now)
			now = now.Add(c.every)
		}
		for _, d := range c.claims {
			p.claimed(d)
		}
		if got := p.ahead(); got < c.lo || got > c.hi {
			t.Errorf("%s: %d ahead, want %d to %d", name, got, c.lo, c.hi)
		}
	}
}

func repeat(d time.Duration, n int) []time.Duration {
	ds := make([]time.Duration, n)
	for i := range ds {
		ds[i] = d
	}
	return ds
}
