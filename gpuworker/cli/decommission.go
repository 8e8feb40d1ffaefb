package cli

import (
	"context"
	"slices"
	"time"

	"rollout/gpuworker/process"
	"rollout/shared/capacity"
	"rollout/shared/core/health"
	"rollout/shared/fault"
	"rollout/shared/observe"
	"rollout/shared/retry"
)

// rented reports whether the machine belongs to a fleet; only such a machine may
// be given up. If the provider does not answer, what the machine was told when it
// started decides: a rented machine that stayed would be paid for without end.
func (s *workplace) rented(ctx context.Context) bool {
	if s.membership == nil {
		return false
	}
	inFleet, err := s.membership.InFleet(ctx)
	if err != nil {
		s.ports.Log.InfoContext(ctx, "the provider does not say whether this machine is in a fleet",
			"taken_for_one", s.launchedForFleet, observe.KeyError, err)
		return s.launchedForFleet
	}
	return inFleet
}

// idle is how long a worker without work goes on; 0 is forever.
func (s *workplace) idle(ctx context.Context) time.Duration {
	if !s.rented(ctx) {
		return 0
	}
	return s.deployment.Cloud.Fleet.IdleTimeout.Std()
}

// reportUnusable records that this machine leaves its fleet because its workers
// can't work on it.
func (f flags) reportUnusable(ctx context.Context, s *workplace, reason string) error {
	pool, err := choosePool(s.deployment, f.pool)
	if err != nil {
		return err
	}
	return process.ReportUnusable(ctx, s.ports, s.machine, pool, reason)
}

// reportBoot records how far the boot of this machine is.
func (f flags) reportBoot(ctx context.Context, s *workplace) error {
	stage := health.BootStage(f.bootStage)
	if !slices.Contains(health.BootStages(), stage) {
		return fault.New(fault.Invalid, "--boot-stage: %q is not a stage of a boot", f.bootStage)
	}
	pool, err := choosePool(s.deployment, f.pool)
	if err != nil {
		return err
	}
	within := s.deployment.MachinesOf(s.deployment.Pool(pool)).BootDeadline.Std()
	return process.ReportBoot(ctx, s.ports, s.machine, pool, stage, within)
}

// unusableReasons says why a machine was unusable, by how its workers ended.
// Other ends are not the machine's fault.
var unusableReasons = map[process.ExitReason]string{
	process.Unusable:  "its workers could not work for long",
	process.GPUFailed: "a GPU failed before it had answered anything; see the worker's messages on its console",
}

// decommission gives up a rented machine whose workers have ended: it has no
// work, or is unfit for it.
func (f flags) decommission(ctx context.Context, s *workplace, end process.ExitReason) error {
	mode := capacity.Replace
	switch {
	case end == process.Requested || !s.rented(ctx):
		return nil
	case unusableReasons[end] != "":
		if err := f.reportUnusable(ctx, s, unusableReasons[end]); err != nil {
			s.ports.Log.WarnContext(ctx, "the reason for giving this machine up can't be recorded", observe.KeyError, err)
		}
		mode = capacity.Shrink
	case end == process.Idle:
		mode = capacity.Shrink
	}
	log := s.ports.Log.With(observe.KeyReason, string(end))
	log.InfoContext(ctx, "this machine is given up", "then", string(mode))
	// A provider may refuse while it changes the fleet's size.
	err := retry.Policy{Tries: 6, Base: time.Second, Max: 15 * time.Second}.Do(ctx,
		func(int) error { return s.membership.Terminate(ctx, mode) })
	if fault.Is(err, fault.NotFound) {
		log.InfoContext(ctx, "this machine stays: it is not in a fleet", observe.KeyError, err)
		return nil
	}
	return err
}
