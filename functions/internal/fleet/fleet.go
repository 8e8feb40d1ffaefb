// Package fleet raises the fleets of pools for the work that functions see.
//
//	coordinate sent work ──┐
//	reclaim saw work wait ─┴─▶ Note ──▶ Raise: at most one request a pool
//
// How many machines there should be is computed when they are asked for, from
// what is known then, and never sent again later: what one call misses, the
// next look of reclaim finds. It lowers nothing and starts no worker, and a run
// goes on whether it succeeds or not.
package fleet

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"rollout/shared/capacity"
	"rollout/shared/clock"
	"rollout/shared/engine/fleet"
	"rollout/shared/fault"
	"rollout/shared/observe"
)

// Often is how long who sends work often leaves a fleet alone that was raised,
// if no more is needed. It is less than the minute in which reclaim looks.
const Often = 45 * time.Second

// Raiser collects what pools need and raises their fleets. Safe for concurrent
// use.
type Raiser struct {
	fleet capacity.Fleet
	rules fleet.Rules
	again time.Duration // how long a fleet that was raised is left alone, if no more is needed
	clock clock.Clock
	log   *slog.Logger

	mu     sync.Mutex
	needs  map[string]fleet.Need // noted since the last Raise, by pool
	asked  map[string]asked
	absent map[string]bool // pools without machines of the fleet's, which was said
}

// asked is what was asked for last.
type asked struct {
	machines int
	at       time.Time
}

// New returns a raiser, which asks for the same again after so long.
func New(f capacity.Fleet, r fleet.Rules, again time.Duration, c clock.Clock, log *slog.Logger) *Raiser {
	return &Raiser{fleet: f, rules: r, again: again, clock: c, log: log, needs: map[string]fleet.Need{}, asked: map[string]asked{}, absent: map[string]bool{}}
}

// Note adds to what the pool needs.
func (r *Raiser) Note(pool string, n fleet.Need) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.needs[pool] = r.needs[pool].And(n)
}

// Raise raises the fleets of the pools that something was noted of. What fails
// is logged, as nobody could do more about it: it is tried again when more is
// noted.
func (r *Raiser) Raise(ctx context.Context) {
	for pool, machines := range r.wishes() {
		err := r.fleet.Raise(ctx, pool, machines)
		switch {
		case err == nil:
			r.log.DebugContext(ctx, "machines are wanted", observe.KeyPool, pool, "machines", machines)
		case ctx.Err() != nil:
			r.forget(pool)
		case fault.Is(err, fault.NotFound):
			if r.firstAbsence(pool) {
				r.log.InfoContext(ctx, "no machines come up for the pool", observe.KeyPool, pool, observe.KeyReason, err)
			}
			continue // and need not be asked for soon
		default:
			r.log.WarnContext(ctx, "the fleet can't be raised", observe.KeyPool, pool, "machines", machines, observe.KeyError, err)
			r.forget(pool)
		}
	}
}

// wishes takes what was noted and returns how many machines are to be asked
// for, by pool.
func (r *Raiser) wishes() map[string]int {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := map[string]int{}
	now := r.clock.Now()
	for pool, need := range r.needs {
		machines := r.rules.Machines(need)
		last := r.asked[pool]
		if machines == 0 || machines <= last.machines && now.Sub(last.at).Abs() < r.again {
			continue
		}
		r.asked[pool] = asked{machines, now}
		out[pool] = machines
	}
	clear(r.needs)
	return out
}

func (r *Raiser) firstAbsence(pool string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	said := r.absent[pool]
	r.absent[pool] = true
	return !said
}

// forget lets the pool's fleet be asked for again at once.
func (r *Raiser) forget(pool string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.asked, pool)
}
