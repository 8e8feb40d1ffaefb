package interrupt

import (
	"context"
	"fmt"

	"rollout/shared/cloud"
	"rollout/shared/core/health"
	"rollout/shared/core/scaling"
	"rollout/shared/fault"
	"rollout/shared/host"
	"rollout/shared/observe"
	"rollout/shared/record"
)

// maxEventAge bounds the age of a notice of a machine's end. Heartbeats of its
// workers are kept for longer than that, so a machine without one never sent any.
const maxEventAge = health.HeartbeatRetention / 2

// preempted drains the workers of a machine that its provider takes back. If no
// worker ever sent a heartbeat from it, it records the machine as ended without a
// failure, so that its end does not count as a failed boot.
func (i *Interrupter) preempted(ctx context.Context, n cloud.MachineNotice) error {
	heard, err := i.drain(ctx, n)
	if err != nil || heard {
		return err
	}
	fleet := n.Fleet
	if fleet == "" {
		fleet, err = i.options.FleetOf(ctx, n.Machine)
	}
	switch {
	case fault.Is(err, fault.NotFound): // another's machine
		return nil
	case fault.Is(err, fault.Denied): // a deployment without machines may not ask
		i.Log.InfoContext(ctx, "the fleet of the machine is unknown", "instance", n.Machine, observe.KeyError, err)
		return nil
	case err != nil:
		return fault.Wrap(err, "find the fleet of %s", n.Machine)
	}
	pool, ok := i.poolOf(fleet)
	if !ok {
		return nil
	}
	return i.recordFailure(ctx, pool, n.Machine, "")
}

// terminated records a failed boot if no worker ever sent a heartbeat from the
// machine that ended. Otherwise one machine after another would start and fail
// for as long as a run is open.
func (i *Interrupter) terminated(ctx context.Context, pool string, n cloud.MachineNotice) error {
	if n.Machine == "" {
		return fault.New(fault.Invalid, "the notice names no machine: %+v", n)
	}
	if age := i.Clock.Now().Sub(n.At).Abs(); age > maxEventAge {
		i.Log.WarnContext(ctx, "the machine ended too long ago to know whether it had workers",
			"instance", n.Machine, "age", age)
		return nil
	}
	heard := false
	if err := i.each(ctx, n.Machine, func(health.Heartbeat) { heard = true }); err != nil || heard {
		return err
	}
	i.Log.WarnContext(ctx, "a machine ended before any worker sent a heartbeat",
		observe.KeyPool, pool, "instance", n.Machine, observe.KeyReason, n.Reason)
	return i.recordFailure(ctx, pool, n.Machine, fmt.Sprintf(
		"it ended before any worker sent a heartbeat; look at what it printed: %s (it ended in response to: %s)",
		i.options.Hints.ConsoleOutput(n.Machine), n.Reason))
}

// launchFailed notes why the pool's fleet could not start a machine, for people.
// The fleet itself tries again. The newest notice stands.
func (i *Interrupter) launchFailed(ctx context.Context, pool string, n cloud.MachineNotice) error {
	problem := scaling.Unknown
	if i.options.ProblemOf != nil {
		problem = i.options.ProblemOf(n.Reason)
	}
	change := func(f record.Fleet, _ bool) (record.Fleet, bool, error) {
		f, changed := f.NoteAbsence(n.At, problem, n.Reason)
		return f, changed, nil
	}
	_, err := host.Update(ctx, i.Docs, record.FleetKey(pool), change)
	return fault.Wrap(err, "note that no machine of pool %s can start", pool)
}

// recordFailure writes a final heartbeat in place of the machine, once. An empty
// reason records an end that is not a failure, so that terminated does not record
// one later.
func (i *Interrupter) recordFailure(ctx context.Context, pool, machine, reason string) error {
	now := i.Clock.Now().UTC()
	b := health.Heartbeat{
		Schema: record.Schema, Worker: machine, Pool: pool, State: health.Gone,
		At: now, DueAt: now, Started: now, Instance: machine, FailureReason: reason,
	}
	_, err := host.Save(ctx, i.Docs, record.HeartbeatKey(b.Worker), b, "")
	if fault.Is(err, fault.Conflict) { // it was recorded before
		return nil
	}
	return fault.Wrap(err, "record the end of %s", machine)
}
