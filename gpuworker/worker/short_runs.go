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
//	share/<pool> ──▶ short ──▶ the urgent queue, else the work queue ──▶ claim
//
// The messages of all runs are in the same queues. A worker that is short of one run may
// receive those of others first; holdLimit bounds what it holds of them.
//
// A run that has sent all its shards, as a small one has from its first step on, may have
// some in a queue, or others may hold all of them. A worker looks for its shards until it
// has found the queues empty that may have them: the urgent one and, of a run that had the
// pool alone when it sent some, the work queue.

// poolRuns is what the worker knows of the runs that share its pool. The caller of its
// methods holds w.mu.
type poolRuns struct {
	doc     share.Doc
	short   shortRuns // how many of them were short at
	at      time.Time // this time; zero: it is not known
	crowded bool      // then the worker held maxHold shards with items to begin
	unsent  int       // runs of doc that have shards to send
	// sent are those that have sent all.
	sent map[identity.RunID]*sentRun
}

// shortRuns counts the runs of which the worker holds too few items.
type shortRuns struct {
	either int // those of which both queues may have shards
	urgent int // those of which only the urgent queue may have any
}

// sentRun is a run all of whose shards were sent.
type sentRun struct {
	since  time.Time // when the worker first saw that
	urgent bool      // the urgent queue was not empty since, or not for long enough
	work   bool      // nor was the work queue
}

// look has the worker look for shards of r in the queues that may have some.
func (r *sentRun) look(entry share.Run) { r.urgent, r.work = true, entry.SentAlone }

// sentAfter is how long after its entry the messages of a run are in their queue.
const sentAfter = 2 * time.Second

// list takes over the document, and what p knows of its runs.
func (p *poolRuns) list(d share.Doc, now time.Time) {
	next := poolRuns{doc: d, sent: map[identity.RunID]*sentRun{}}
	for _, r := range d.Runs {
		if !r.Sent {
			next.unsent++
			continue
		}
		s := p.sent[r.Run]
		if s == nil {
			s = &sentRun{since: now}
			s.look(r)
		}
		next.sent[r.Run] = s
	}
	*p = next
}

// empty says that the urgent queue or the work queue, asked at that time, had no message.
func (p *poolRuns) empty(urgent bool, asked time.Time) {
	for _, s := range p.sent {
		if early := asked.Sub(s.since) < sentAfter; urgent {
			s.urgent = s.urgent && early
		} else {
			s.work = s.work && early
		}
	}
	p.at = time.Time{}
}

// claimed says that the worker has claimed a shard of the run: there may be more.
func (p *poolRuns) claimed(id identity.RunID) {
	if s := p.sent[id]; s != nil {
		entry, _ := p.doc.Find(id)
		s.look(entry)
	}
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

// short returns for how many runs of the pool the worker should claim a shard: those of
// which it holds too few items, less the claims under way. It is none if the pool has one
// run alone. The caller holds w.mu.
func (w *Worker) short() shortRuns {
	p := &w.pool
	if len(p.doc.Runs) < 2 {
		return shortRuns{}
	}
	now := w.Clock.Now()
	if p.at.IsZero() || now.Sub(p.at) >= shortRunsAge {
		p.at, p.short = now, w.countShortRuns(now)
	}
	return shortRuns{max(0, p.short.either-w.claiming), max(0, p.short.urgent-w.claiming)}
}

func (w *Worker) countShortRuns(now time.Time) (short shortRuns) {
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
	lookedFor := w.pool.unsent
	for _, r := range w.pool.doc.Runs {
		if ready[r.Run] >= max(1, int(begins*r.WeightAt(now)/total)) {
			continue
		}
		s := w.pool.sent[r.Run]
		switch {
		case s == nil:
			short.either++
		case s.work:
			short.either++
			lookedFor++
		case s.urgent:
			short.urgent++
			lookedFor++
		}
	}
	room := min(maxPull, max(0, holdLimit(lookedFor)-counted))
	return shortRuns{min(short.either, room), min(short.urgent, room)}
}

// sharesLoop reads which runs share the pool, as often as the heartbeat is written, while
// the worker holds or claims shards. An idle worker takes whatever comes, and a resting one
// doesn't look.
func (w *Worker) sharesLoop(ctx context.Context) {
	every := w.cfg.Timings.Interval
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
	w.mu.Lock()
	w.pool.list(d, w.Clock.Now())
	short := w.short()
	w.mu.Unlock()
	if short != (shortRuns{}) {
		w.wake()
	}
	return nil
}
