// Package autoscaler scales up the fleets of pools for the demand that functions
// see.
//
//	coordinate sent work ──┐
//	reclaim saw demand ────┴─▶ Record ─┬▶ ScaleUp: at most one request for each pool
//	                                   └▶ Settle: ScaleUp, and requests of idle pools are withdrawn
//
// A pool whose machines end before they answer anything is asked for later and later; see
// scaling.Boots. Its requests are withdrawn meanwhile, so that its fleet starts no machine in
// the place of the one that ended. The demand of a run with a budget in dollars counts for no
// more machines than what is left of it pays for; see scaling.Rules.Within.
//
// ScaleUp computes the number of machines from the demand that is recorded at that
// moment, and never repeats a request later: what one call misses, the next scan
// of reclaim finds. The package never ends a machine and starts no worker. A run
// does not depend on its success.
package autoscaler

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"rollout/shared/capacity"
	"rollout/shared/clock"
	"rollout/shared/cloud"
	"rollout/shared/core/scaling"
	"rollout/shared/fault"
	"rollout/shared/host"
	"rollout/shared/observe"
	"rollout/shared/prices"
	"rollout/shared/record"
)

// Cooldown is the cooldown for a function that sends work often. It is shorter
// than the minute between two scans of reclaim.
const Cooldown = 45 * time.Second

// Scaler collects the demand of pools and scales up their fleets. It is safe for
// concurrent use.
type Scaler struct {
	fleet capacity.Fleet
	opts  Options

	mu       sync.Mutex
	demand   map[string]scaling.Demand // recorded since the last ScaleUp, by pool
	requests map[string]request        // the last of each pool
	absent   map[string]bool           // pools without a fleet, for which that was logged
}

// request is the last request for a pool.
type request struct {
	machines int
	at       time.Time
}

// Options are what a scaler takes besides the fleet.
type Options struct {
	Rules scaling.Rules
	// Own are the rules of pools that have others.
	Own map[string]scaling.Rules
	// Cooldown is how long after a request for a pool only larger requests are
	// sent for that pool.
	Cooldown time.Duration
	Clock    clock.Clock
	Log      *slog.Logger
	Pools    []string // all pools with machines, for Settle
	// Hour returns what a machine of a pool costs in an hour at least, in dollars; 0 if that is not
	// known. Optional: without it budgets hold no machine back.
	Hour func(pool string) float64
	// Boots returns what the past boots of a pool's machines tell. Optional.
	Boots func(ctx context.Context, pool string) (scaling.Boots, error)
}

// New returns a scaler of the fleets of all pools.
func New(f capacity.Fleet, o Options) *Scaler {
	return &Scaler{fleet: f, opts: o,
		demand: map[string]scaling.Demand{}, requests: map[string]request{}, absent: map[string]bool{}}
}

// ForInstallation returns the scaler of an installation in a cloud; see New. It
// sends no request.
func ForInstallation(in cloud.Installation, cooldown time.Duration) *Scaler {
	s := in.Stores()
	fleet := s.Deployment.Cloud.Fleet
	o := Options{Rules: scaling.Rules{ShardsPerMachine: fleet.ShardsPerMachine, MaxMachines: fleet.MaxMachines},
		Own: map[string]scaling.Rules{}, Cooldown: cooldown, Clock: s.Ports.Clock, Log: s.Ports.Log}
	for _, p := range s.Deployment.Pools {
		o.Pools = append(o.Pools, p.Name)
		if n := s.Deployment.ShardsPerMachine(p.Name); n != fleet.ShardsPerMachine {
			o.Own[p.Name] = scaling.Rules{ShardsPerMachine: n, MaxMachines: fleet.MaxMachines}
		}
	}
	o.Boots = func(ctx context.Context, pool string) (scaling.Boots, error) {
		var f record.Fleet
		_, _, err := host.Load(ctx, s.Ports.Docs, record.FleetKey(pool), &f)
		return f.Boots, err
	}
	o.Hour = func(pool string) float64 { return prices.Least(s.Deployment, pool) }
	return New(in.Fleet(), o)
}

// rules returns the rules of a pool.
func (r *Scaler) rules(pool string) scaling.Rules {
	if own, ok := r.opts.Own[pool]; ok {
		return own
	}
	return r.opts.Rules
}

// Record adds the demand of a run to that of a pool, as far as the run's budget pays for it.
func (r *Scaler) Record(pool string, n scaling.Demand) {
	if n.LeftMicroUSD > 0 && r.opts.Hour != nil {
		n = r.rules(pool).Within(n, r.opts.Hour(pool))
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.demand[pool] = r.demand[pool].And(n)
}

// ScaleUp scales up the fleets of the pools with recorded demand. It logs
// failures and returns none: the caller could not act on them, and the next
// recorded demand tries again.
func (r *Scaler) ScaleUp(ctx context.Context) { r.scaleUp(ctx) }

// scaleUp is ScaleUp. It returns the pools that wait after a failed boot.
func (r *Scaler) scaleUp(ctx context.Context) (waiting []string) {
	for pool, machines := range r.targets() {
		if r.waits(ctx, pool) {
			waiting = append(waiting, pool)
			r.resetCooldown(pool)
			continue
		}
		err := r.fleet.ScaleUp(ctx, pool, machines)
		switch {
		case err == nil:
			r.opts.Log.DebugContext(ctx, "machines requested", observe.KeyPool, pool, "machines", machines)
		case ctx.Err() != nil:
			r.resetCooldown(pool)
		case fault.Is(err, fault.NotFound):
			if r.markAbsent(pool) {
				r.opts.Log.InfoContext(ctx, "the pool has no fleet to scale up", observe.KeyPool, pool, observe.KeyReason, err)
			}
			continue // and keep the cooldown
		default:
			r.opts.Log.WarnContext(ctx, "the fleet can't be scaled up",
				observe.KeyPool, pool, "machines", machines, observe.KeyError, err)
			r.resetCooldown(pool)
		}
	}
	return waiting
}

// waits reports whether the pool waits after a failed boot. A pool whose boots can't be read
// does not wait: work goes on.
func (r *Scaler) waits(ctx context.Context, pool string) bool {
	if r.opts.Boots == nil {
		return false
	}
	boots, err := r.opts.Boots(ctx, pool)
	if err != nil {
		r.opts.Log.WarnContext(ctx, "the pool's past boots can't be read", observe.KeyPool, pool, observe.KeyError, err)
		return false
	}
	now := r.opts.Clock.Now()
	if boots.Waits(now) {
		r.opts.Log.InfoContext(ctx, "no machine is asked for: the last one failed to boot", observe.KeyPool, pool,
			"failures", boots.Failures, "until", boots.RetryAt, observe.KeyReason, boots.Reason)
	}
	return boots.Waits(now)
}

// Settle is ScaleUp for a caller that has recorded the demand of all runs: it also
// withdraws the requests of the pools that need no further machine, where the fleet can
// do that.
func (r *Scaler) Settle(ctx context.Context) {
	idle := r.idle()
	idle = append(idle, r.scaleUp(ctx)...)
	fleet, ok := r.fleet.(capacity.Withdrawer)
	if !ok {
		return
	}
	for _, pool := range idle {
		if err := fleet.Withdraw(ctx, pool); err != nil && ctx.Err() == nil {
			r.opts.Log.WarnContext(ctx, "requests for machines can't be withdrawn", observe.KeyPool, pool, observe.KeyError, err)
		}
	}
}

// idle returns the pools that need no further machine by the recorded demand.
func (r *Scaler) idle() (pools []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, pool := range r.opts.Pools {
		if r.rules(pool).DesiredMachines(r.demand[pool]) == 0 {
			pools = append(pools, pool)
		}
	}
	return pools
}

// targets clears the recorded demand, and returns the number of machines to
// request, by pool.
func (r *Scaler) targets() map[string]int {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := map[string]int{}
	now := r.opts.Clock.Now()
	for pool, d := range r.demand {
		machines := r.rules(pool).DesiredMachines(d)
		last := r.requests[pool]
		if machines == 0 || machines <= last.machines && now.Sub(last.at).Abs() < r.opts.Cooldown {
			continue
		}
		r.requests[pool] = request{machines, now}
		out[pool] = machines
	}
	clear(r.demand)
	return out
}

// markAbsent notes that the pool has no fleet, and reports whether that is new.
func (r *Scaler) markAbsent(pool string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	known := r.absent[pool]
	r.absent[pool] = true
	return !known
}

// resetCooldown allows the next request for the pool at once.
func (r *Scaler) resetCooldown(pool string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.requests, pool)
}
