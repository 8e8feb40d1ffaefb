package worker

import (
	"context"
	"time"

	"rollout/shared/core/identity"
	"rollout/shared/core/share"
	"rollout/shared/host"
	"rollout/shared/record"
)

// A worker divides its requests over the runs of which it holds shards. It therefore holds
// a shard with items to begin of every run that shares its pool, as far as there are any:
//
//	share/<pool> ──▶ shortRuns ──▶ the urgent queue, else the work queue ──▶ claim
//
// The messages of all runs are in the same queues. A worker that is short of one run may
// receive those of others first; holdLimit bounds what it holds of them.

// poolRuns is what the worker knows of the runs that share its pool. The caller of its
// methods holds w.mu.
type poolRuns struct {
	doc     share.Doc
	short   int       // how many of them were short at
	at      time.Time // this time; zero: it is not known
	crowded bool      // then the worker held maxHold shards with items to begin
	unsent  int       // runs of doc that have shards to send
}

// shortRunsAge is how old the count of short runs may be: it is asked for with each item.
const shortRunsAge = 20 * time.Millisecond

// shortAfter is for how long the items of a run that have not begun must last, or the run
// is short: longer than it takes until coordinate hears of a shard that is done, and the one
// that it sends instead is claimed here.
const shortAfter = 2 * time.Second

// From maxHold shards with items to begin on, a worker takes none from the work queue for
// the sake of runs. Of each run, holdPerRun count for holdLimit.
const (
	maxHold    = 64
	holdPerRun = 8
)

// holdLimit returns how many shards with items to begin a worker holds at most for the
// sake of that many runs. There is room for each: a run of which the work queue has very
// many, as it had the pool alone, must not use up that of the others.
func holdLimit(runs int) int { return holdPerRun * (runs + 1) }

// shortRuns returns for how many runs of the pool the worker should claim a shard: those
// with shards to send of which it holds too few items, less the claims under way. It is 0
// if the pool has one run alone. The caller holds w.mu.
func (w *Worker) shortRuns() int {
	p := &w.pool
	if len(p.doc.Runs) < 2 || p.unsent == 0 {
		return 0
	}
	now := w.Clock.Now()
	if p.at.IsZero() || now.Sub(p.at) >= shortRunsAge {
		p.at, p.short = now, w.countShortRuns(now)
	}
	return max(0, p.short-w.claiming)
}

func (w *Worker) countShortRuns(now time.Time) (short int) {
	ready, of := map[identity.RunID]int{}, map[identity.RunID]int{}
	counted, all := w.claiming, w.claiming
	for _, h := range w.held {
		n := w.perShard
		if h.work != nil {
			n = h.work.unbegun()
		}
		ready[h.run] += n
		if n == 0 {
			continue
		}
		all++
		if of[h.run]++; of[h.run] <= holdPerRun {
			counted++
		}
	}
	w.pool.crowded = all >= maxHold
	begins := w.pace.perSecond()*shortAfter.Seconds() + float64(w.slots.size())
	total := w.pool.doc.Total(now)
	for _, r := range w.pool.doc.Runs {
		if !r.Sent && ready[r.Run] < max(1, int(begins*r.WeightAt(now)/total)) {
			short++
		}
	}
	return min(short, maxPull, max(0, holdLimit(w.pool.unsent)-counted))
}

// sharesLoop reads which runs share the pool, as often as controls, while the worker holds
// or claims shards. An idle worker takes whatever comes, and a resting one doesn't look.
func (w *Worker) sharesLoop(ctx context.Context) {
	every := min(w.cfg.Timings.Interval, maxControlAge)
	due := time.NewTimer(every)
	defer due.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.sharesDue:
			due.Reset(every)
			continue
		case <-due.C:
		}
		w.mu.Lock()
		idle, resting := w.idle(), w.resting()
		if idle {
			w.pool = poolRuns{}
		}
		w.mu.Unlock()
		if resting {
			continue // until work comes
		}
		due.Reset(every)
		if idle {
			continue
		}
		if err := w.readShares(ctx); err != nil && ctx.Err() == nil {
			w.Log.WarnContext(ctx, "the shares of the pool can't be read", "pool", w.cfg.Pool, "error", err)
		}
	}
}

// readShares reads which runs share the pool, and has the pull loop look for those of
// which the worker holds too little.
func (w *Worker) readShares(ctx context.Context) error {
	var d share.Doc
	if _, _, err := host.Load(ctx, w.Docs, record.ShareKey(w.cfg.Pool), &d); err != nil {
		return err
	}
	unsent := 0
	for _, r := range d.Runs {
		if !r.Sent {
			unsent++
		}
	}
	w.mu.Lock()
	w.pool = poolRuns{doc: d, unsent: unsent}
	short := w.shortRuns()
	w.mu.Unlock()
	if short > 0 {
		w.wake()
	}
	return nil
}
