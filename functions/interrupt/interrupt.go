// Package interrupt acts on what a provider reports about machines: that one is
// taken back, stops, was ended by its fleet, or can't be started.
//
//		MachineNotice ──▶ Handle ─┬─ preempted, stopping ────────▶ worker/<worker> drain mark
//		                          ├─ at risk, if the pool wants ─▶ worker/<worker> drain mark
//		                          ├─ ended, nothing answered ────▶ beat/<machine> failure report
//		                          └─ launch failed ──────────────▶ fleet/<pool> reason, for people
//
//	 1. Before the end: find the machine's workers by their heartbeats, and mark
//	    them to drain. A worker learns most of it from its own machine, and sooner.
//	    A repeated notice changes nothing: several notices make one mark.
//	 2. After the end: record a machine that ended before it answered anything as a
//	    failed boot. A machine on which no worker could start reports that in a heartbeat;
//	    if it can't, only its provider knows that it existed. Package reclaim counts
//	    the failures and pauses the pool's runs.
//	 3. If a machine could not be launched: note why, for people.
//
// The package never decides that a worker is dead: only its heartbeat does.
package interrupt

import (
	"context"
	"errors"

	"rollout/shared/cloud"
	"rollout/shared/config"
	"rollout/shared/core/health"
	"rollout/shared/core/scaling"
	"rollout/shared/fault"
	"rollout/shared/host"
	"rollout/shared/observe"
	"rollout/shared/record"
)

// Interrupter acts on notices. It is safe for concurrent use.
type Interrupter struct {
	host.Ports
	options Options
}

// Options say which machines the notices are about.
type Options struct {
	Deployment config.Deployment // with the pools whose fleets count
	Hints      cloud.Hints
	// FleetOf asks the provider for the fleet of a machine. A machine in no fleet
	// is NotFound; Denied means that the deployment may not ask.
	FleetOf func(ctx context.Context, machine string) (fleet string, err error)
	// ProblemOf says what kind of cause a failed launch has, by the provider's words. Optional.
	ProblemOf func(reason string) scaling.ProblemKind
}

// New returns an interrupter over the ports.
func New(p host.Ports, o Options) *Interrupter { return &Interrupter{p.WithSource("interrupt"), o} }

// Handle acts on one notice. It ignores machines and fleets of others. A notice
// that names no machine is Invalid; other errors pass, so handle the notice again.
func (i *Interrupter) Handle(ctx context.Context, n cloud.MachineNotice) error {
	switch n.Kind {
	case cloud.MachinePreempted:
		return i.preempted(ctx, n)
	case cloud.MachineTerminated, cloud.LaunchFailed:
		pool, ok := i.poolOf(n.Fleet)
		switch {
		case !ok:
			return nil
		case n.Kind == cloud.LaunchFailed:
			return i.launchFailed(ctx, pool, n)
		}
		return i.terminated(ctx, pool, n)
	}
	_, err := i.drain(ctx, n)
	return err
}

// drains reports whether the notice ends the work of a pool's workers. Machines at risk
// mostly stay, and those that replace them are at the same risk, so that a pool leaves them
// only if its config says so.
func (i *Interrupter) drains(n cloud.MachineNotice, pool string) bool {
	return n.Kind != cloud.MachineAtRisk || i.options.Deployment.Pool(pool).DrainOnRebalance
}

// poolOf returns the pool whose machines are in the fleet.
func (i *Interrupter) poolOf(fleet string) (string, bool) {
	for _, p := range i.options.Deployment.Pools {
		if i.options.Deployment.Cloud.FleetName(p.Name) == fleet {
			return p.Name, true
		}
	}
	return "", false
}

// drain asks the workers on a machine to drain, and returns what their heartbeats say.
// Most machines without workers belong to others.
func (i *Interrupter) drain(ctx context.Context, n cloud.MachineNotice) (seen machineSeen, err error) {
	if n.Machine == "" {
		return seen, fault.New(fault.Invalid, "the notice names no machine")
	}
	found := 0
	var failed error // an error about one worker does not stop the others
	err = i.each(ctx, n.Machine, func(b health.Heartbeat) {
		seen.add(b)
		if b.State != health.Gone && b.State != health.Booting && i.drains(n, b.Pool) {
			found++
			failed = errors.Join(failed, i.requestDrain(ctx, b.Worker, n.Reason))
		}
	})
	if found == 0 && err == nil {
		i.Log.InfoContext(ctx, "the machine has no worker to drain", "instance", n.Machine, observe.KeyReason, n.Reason)
	}
	return seen, errors.Join(failed, err)
}

// each yields the heartbeats of a machine's workers and its failure report.
func (i *Interrupter) each(ctx context.Context, machine string, yield func(health.Heartbeat)) error {
	err := host.Each(ctx, i.Docs, record.HeartbeatPrefix, func(b health.Heartbeat) error {
		if b.Instance == machine {
			yield(b)
		}
		return ctx.Err()
	})
	if fault.Is(err, fault.Corrupt) || fault.Is(err, fault.Invalid) {
		i.Log.WarnContext(ctx, "a heartbeat can't be read", observe.KeyError, err)
		return nil // of a worker of another version
	}
	return err
}

// requestDrain asks one worker to drain, unless it was asked before.
func (i *Interrupter) requestDrain(ctx context.Context, worker, reason string) error {
	first := false
	_, err := host.Update(ctx, i.Docs, record.WorkerKey(worker),
		func(m record.WorkerMark, _ bool) (record.WorkerMark, bool, error) {
			m, first = m.Drain(reason)
			return m, first, nil
		})
	if err == nil && first {
		i.Log.InfoContext(ctx, "asked the worker to drain", observe.KeyWorker, worker, observe.KeyReason, reason)
	}
	return fault.Wrap(err, "mark worker %s", worker)
}
