package schedule

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"rollout/shared/core/interval"
)

// flying returns shards lo to hi in flight.
func flying(lo, hi int) InFlight {
	var f InFlight
	if lo < hi {
		f.MarkSent(0, time.Unix(0, 0), interval.Range{Lo: lo, Hi: hi})
	}
	return f
}

func TestWindowOfARunByItsShare(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		sharing  Sharing
		pool     int
		inFlight int
		want     int
	}{
		"alone, and the rate is not known": {Sharing{Fraction: 1, Items: 256, Workers: 2}, 4, 0, 256},
		"alone, and begun a moment ago": {Sharing{Fraction: 1, Rate: 1, Young: true, Items: 256,
			Workers: 2}, 4, 0, 256},
		"alone: 10 s of work":                     {Sharing{Fraction: 1, Rate: 2560, Items: 256, Workers: 2}, 4, 0, 100},
		"alone: not more than its document takes": {Sharing{Fraction: 1, Rate: 1e6, Items: 256, Workers: 2}, 4, 0, 256},
		"alone: two shards a worker":              {Sharing{Fraction: 1, Rate: 1, Items: 256, Workers: 5}, 4, 0, 10},
		"alone: what the workers can hold":        {Sharing{Fraction: 1, Rate: 1, Items: 1, Workers: 1}, 65, 0, 65},
		"shared: 5 s of its share": {Sharing{Shared: true, Fraction: 0.25, Rate: 2560, Items: 64,
			Workers: 2}, 2, 0, 50},
		"shared: two shards a worker": {Sharing{Shared: true, Fraction: 0.25, Rate: 10, Items: 256,
			Workers: 2}, 2, 0, 4},
		"shared: no worker lives yet": {Sharing{Shared: true, Fraction: 0.5, Items: 256}, 0, 0, 16},
		"shared: those in flight count": {Sharing{Shared: true, Fraction: 0.25, Items: 256, Workers: 2,
			Held: [][]int{{0, 1}}}, 2, 3, 4},
		"shared: far more are in flight from before": {Sharing{Shared: true, Fraction: 0.25, Items: 256,
			Workers: 2}, 2, 200, 200},
		"shared: one worker holds all": {Sharing{Shared: true, Fraction: 0.25, Items: 256, Workers: 2,
			Held: [][]int{{0, 1, 2, 3}, nil}}, 2, 4, 6},
		"shared: a worker lists shards that are done": {Sharing{Shared: true, Fraction: 0.25, Items: 256, Workers: 2,
			Held: [][]int{{0, 1}, {7, 8}}}, 2, 3, 4},
	} {
		if got := c.sharing.Window(256, c.pool, flying(0, c.inFlight)); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
}

// Whatever is in flight and held, sending the window leaves each worker that holds nothing
// something to claim, and never more that waits than what all workers want.
func TestSharedWindowLeavesWorkForEveryWorker(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		workers := rapid.IntRange(1, 8).Draw(t, "workers")
		s := Sharing{Shared: true, Fraction: rapid.Float64Range(0.001, 1).Draw(t, "fraction"), Items: 256,
			Rate: rapid.Float64Range(0, 3000).Draw(t, "rate"), Workers: workers, Held: make([][]int, workers)}
		next, holding := 0, 0
		var f InFlight
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			if n := s.Window(256, workers, f) - f.Len(); n > 0 {
				f.MarkSent(0, time.Unix(0, 0), interval.Range{Lo: next, Hi: next + n})
				next += n
			}
			idle := 0
			for _, h := range s.Held {
				if len(h) == 0 {
					idle++
				}
			}
			waits := f.Len() - holding
			if idle > 0 && waits == 0 {
				t.Fatalf("%d workers hold nothing, and none of %d shards waits: %v", idle, f.Len(), s.Held)
			}
			if want := max(minPerWorker*workers, s.shards(sharedSeconds*s.Fraction)); waits > want {
				t.Fatalf("%d shards wait to be claimed, and %d are wanted", waits, want)
			}
			// A worker claims a shard that waits, or ends one.
			w := rapid.IntRange(0, workers-1).Draw(t, "worker")
			if rapid.Bool().Draw(t, "claims") && f.Len() > holding {
				for n := range next {
					if _, ok := f.Generation(n); ok && !held(s, n) {
						s.Held[w] = append(s.Held[w], n)
						holding++
						break
					}
				}
			} else if len(s.Held[w]) > 0 {
				f.MarkDone(s.Held[w][0])
				s.Held[w] = s.Held[w][1:]
				holding--
			}
		}
	})
}

func held(s Sharing, n int) bool {
	for _, h := range s.Held {
		for _, m := range h {
			if m == n {
				return true
			}
		}
	}
	return false
}
