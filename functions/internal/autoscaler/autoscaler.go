// Package fleet raises the fleets of pools for the work that functions see.
//
//	coordinate sent work ──┐
//	reclaim saw work wait ─┴─▶ Note ──▶ Raise: at most one request a pool
//
// How many machines there should be is computed when they are asked for, from
// what is known then, and never sent again later: what one call misses, the
// next look of reclaim finds. It lowers nothing and starts no worker, and a run
// goes on whether it succeeds or not.
package autoscaler

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"rollout/shared/capacity"
	"rollout/shared/clock"
	"rollout/shared/core/scaling"
	"rollout/shared/fault"
	"rollout/shared/observe"
)

// Cooldown is how long who sends work often leaves a fleet alone that was raised,
// if no more is needed. It is less than the minute in which reclaim looks.
const Cooldown = 45 * time.Second

// Scaler collects what pools need and raises their fleets. Safe for concurrent
// use.
type Scaler struct {
	fleet    capacity.Fleet
	rules    scaling.Rules
	cooldown time.Duration // how long a fleet that was raised is left alone, if no more is needed
	clock    clock.Clock
	log      *slog.Logger

	mu       sync.Mutex
	needs    map[string]scaling.Demand // noted since the last Raise, by pool
	requests map[string]request
	absent   map[string]bool // pools without machines of the fleet's, which was said
}

// request is what was asked for last.
type request struct {
	machines int
	at       time.Time
}

// New returns a raiser, which asks for the same again after so long.
func New(f capacity.Fleet, r scaling.Rules, again time.Duration, c clock.Clock, log *slog.Logger) *Scaler {
	return &Scaler{fleet: f, rules: r, cooldown: again, clock: c, log: log, needs: map[string]scaling.Demand{}, requests: map[string]request{}, absent: map[string]bool{}}
}

// Record adds to what the pool needs.
func (r *Scaler) Record(pool string, n scaling.Demand) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.needs[pool] = r.needs[pool].And(n)
}

// ScaleUp raises the fleets of the pools that something was noted of. What fails
// is logged, as nobody could do more about it: it is tried again when more is
// noted.
func (r *Scaler) ScaleUp(ctx context.Context) {
	for pool, machines := range r.targets() {
		err := r.fleet.ScaleUp(ctx, pool, machines)
		switch {
		case err == nil:
			r.log.DebugContext(ctx, "machines are wanted", observe.KeyPool, pool, "machines", machines)
		case ctx.Err() != nil:
			r.resetCooldown(pool)
		case fault.Is(err, fault.NotFound):
			if r.markAbsent(pool) {
				r.log.InfoContext(ctx, "no machines come up for the pool", observe.KeyPool, pool, observe.KeyReason, err)
			}
			continue // and need not be asked for soon
		default:
			r.log.WarnContext(ctx, "the fleet can't be raised", observe.KeyPool, pool, "machines", machines, observe.KeyError, err)
			r.resetCooldown(pool)
		}
	}
}

// targets takes what was noted and returns how many machines are to be asked
// for, by pool.
func (r *Scaler) targets() map[string]int {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := map[string]int{}
	now := r.clock.Now()
	for pool, need := range r.needs {
		machines := r.rules.DesiredMachines(need)
		last := r.requests[pool]
		if machines == 0 || machines <= last.machines && now.Sub(last.at).Abs() < r.cooldown {
			continue
		}
		r.requests[pool] = request{machines, now}
		out[pool] = machines
	}
	clear(r.needs)
	return out
}

func (r *Scaler) markAbsent(pool string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	said := r.absent[pool]
	r.absent[pool] = true
	return !said
}

// resetCooldown lets the pool's fleet be asked for again at once.
func (r *Scaler) resetCooldown(pool string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.requests, pool)
}
