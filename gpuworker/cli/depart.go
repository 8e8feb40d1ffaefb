package cli

import (
	"context"
	"time"

	"rollout/gpuworker/process"
	"rollout/shared/capacity"
	"rollout/shared/fault"
	"rollout/shared/observe"
	"rollout/shared/retry"
)

// rented reports whether the machine came up for its fleet. Another is its
// owner's to give up. Where nobody says, it is what the machine was told when it
// came up: one that stayed over a question without an answer would be paid for
// without end.
func (s *site) rented(ctx context.Context) bool {
	if s.seat == nil {
		return false
	}
	taken, err := s.seat.Taken(ctx)
	if err != nil {
		s.ports.Log.InfoContext(ctx, "whether this machine is one of a fleet is not known", "taken_for_one", s.cameUp, observe.KeyError, err)
		return s.cameUp
	}
	return taken
}

// idle is how long a worker without work goes on; 0 is for ever.
func (s *site) idle(ctx context.Context) time.Duration {
	if !s.rented(ctx) {
		return 0
	}
	return s.deployment.Cloud.Fleet.Idle.Std()
}

// lastWord says for the machine that it leaves its fleet, as nobody can work on it.
func (f flags) lastWord(ctx context.Context, s *site, reason string) error {
	pool, err := choosePool(s.deployment, f.pool)
	if err != nil {
		return err
	}
	return process.GiveUp(ctx, s.ports, s.machine, pool, reason)
}

// lost is why nobody could work on a machine whose workers ended so; it has no
// other ends.
var lost = map[process.End]string{
	process.Hopeless: "its workers could not work for long",
	process.Broken:   "a GPU failed before it had answered anything; see the worker's words on its console",
}

// depart gives a rented machine up whose workers have ended so: it has no work,
// or is not fit for it, or nobody could work on it.
func (f flags) depart(ctx context.Context, s *site, end process.End) error {
	after := capacity.Replace
	switch {
	case end == process.Asked || !s.rented(ctx):
		return nil
	case lost[end] != "":
		if err := f.lastWord(ctx, s, lost[end]); err != nil {
			s.ports.Log.WarnContext(ctx, "nobody hears that this machine is given up", observe.KeyError, err)
		}
		after = capacity.Shrink
	case end == process.Idle:
		after = capacity.Shrink
	}
	log := s.ports.Log.With(observe.KeyReason, string(end))
	log.InfoContext(ctx, "this machine is given up", "then", string(after))
	// Auto Scaling refuses while it is busy with the group.
	err := retry.Policy{Tries: 6, Base: time.Second, Max: 15 * time.Second}.Do(ctx, func(int) error { return s.seat.Leave(ctx, after) })
	if fault.Is(err, fault.NotFound) {
		log.InfoContext(ctx, "this machine has no place in a fleet: it stays", observe.KeyError, err)
		return nil
	}
	return err
}
