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
func (s *workplace) rented(ctx context.Context) bool {
	if s.membership == nil {
		return false
	}
	taken, err := s.membership.InFleet(ctx)
	if err != nil {
		s.ports.Log.InfoContext(ctx, "whether this machine is one of a fleet is not known", "taken_for_one", s.launchedForFleet, observe.KeyError, err)
		return s.launchedForFleet
	}
	return taken
}

// idle is how long a worker without work goes on; 0 is for ever.
func (s *workplace) idle(ctx context.Context) time.Duration {
	if !s.rented(ctx) {
		return 0
	}
	return s.deployment.Cloud.Fleet.IdleTimeout.Std()
}

// lastWord says for the machine that it leaves its fleet, as nobody can work on it.
func (f flags) lastWord(ctx context.Context, s *workplace, reason string) error {
	pool, err := choosePool(s.deployment, f.pool)
	if err != nil {
		return err
	}
	return process.ReportUnusable(ctx, s.ports, s.machine, pool, reason)
}

// unusableReasons is why nobody could work on a machine whose workers ended so; it has no
// other ends.
var unusableReasons = map[process.ExitReason]string{
	process.Unusable:  "its workers could not work for long",
	process.GPUFailed: "a GPU failed before it had answered anything; see the worker's words on its console",
}

// decommission gives a rented machine up whose workers have ended so: it has no work,
// or is not fit for it, or nobody could work on it.
func (f flags) decommission(ctx context.Context, s *workplace, end process.ExitReason) error {
	after := capacity.Replace
	switch {
	case end == process.Requested || !s.rented(ctx):
		return nil
	case unusableReasons[end] != "":
		if err := f.lastWord(ctx, s, unusableReasons[end]); err != nil {
			s.ports.Log.WarnContext(ctx, "nobody hears that this machine is given up", observe.KeyError, err)
		}
		after = capacity.Shrink
	case end == process.Idle:
		after = capacity.Shrink
	}
	log := s.ports.Log.With(observe.KeyReason, string(end))
	log.InfoContext(ctx, "this machine is given up", "then", string(after))
	// Auto Scaling refuses while it is busy with the group.
	err := retry.Policy{Tries: 6, Base: time.Second, Max: 15 * time.Second}.Do(ctx, func(int) error { return s.membership.Terminate(ctx, after) })
	if fault.Is(err, fault.NotFound) {
		log.InfoContext(ctx, "this machine has no place in a fleet: it stays", observe.KeyError, err)
		return nil
	}
	return err
}
