package schedule

import "math"

// Sharing is how the pools of a run are divided, as its coordinator knows from share/<pool>
// and from the heartbeats.
type Sharing struct {
	Shared   bool    // other runs are open in the pool
	Fraction float64 // of the pool's requests that the run may have; 1 if it is not shared
	Rate     float64 // items a second that the pool answers, of all runs
	Young    bool    // the run was begun a moment ago: Rate says little of a run that is alone
	Items    int     // of a shard, on average
	Workers  int     // living workers
	// Held are the shards of the run that each living worker holds by its heartbeat.
	Held [][]int
}

// The work that may be in flight, by the time that the pool takes for it. A run that has
// its pool alone may have more: its messages wait in the work queue. Those of runs that
// share wait in the urgent queue, in front of those of a run that opens later, until a
// worker claims them.
const (
	aloneSeconds  = 10
	sharedSeconds = 5
)

// minPerWorker is how many shards of a run at least may be in flight for each worker: one
// is answered while the next is claimed. withoutWorkers is how many may be while no worker
// lives, for those that start.
const (
	minPerWorker   = 2
	withoutWorkers = 16
)

// Window returns how many shards of a run may be in flight. full is that by Window, pool
// how many shards the workers can hold at once, f what is in flight.
//
// A run that has its pool alone gets 10 s of work. A run that shares gets 5 s of its share.
// Both get at least minPerWorker shards for each worker, and as many as keep all workers
// busy: the other runs may have nothing to ask. What a worker holds beyond its part of
// that does not count, so that another one gets some, too.
func (s Sharing) Window(full, pool int, f InFlight) int {
	floor := max(minPerWorker*s.Workers, pool)
	if s.Workers == 0 {
		floor = withoutWorkers
	}
	switch {
	case s.Shared:
		return min(full, f.Len()+s.room(max(floor, s.shards(sharedSeconds*s.Fraction)), f))
	case s.Rate > 0 && !s.Young:
		return min(full, max(floor, s.shards(aloneSeconds)))
	}
	return full
}

// shards returns how many shards the pool answers in that time.
func (s Sharing) shards(seconds float64) int {
	return int(math.Ceil(s.Rate * seconds / float64(max(1, s.Items))))
}

// room returns how many more shards may be sent until all workers have enough: want, an
// equal part each. Those in flight that no worker holds count, wherever they go.
func (s Sharing) room(want int, f InFlight) int {
	each := (want + max(1, s.Workers) - 1) / max(1, s.Workers)
	held, counted := 0, 0
	for _, shards := range s.Held {
		n := 0
		for _, shard := range shards {
			if _, ok := f.Generation(shard); ok {
				n++
			}
		}
		held += n
		counted += min(n, each)
	}
	return max(0, want-counted-max(0, f.Len()-held))
}
