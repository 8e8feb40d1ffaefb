package process

import (
	"context"
	"log/slog"
	"strings"
	"time"

	"github.com/oklog/ulid/v2"

	"rollout/gpuworker/worker"
	"rollout/shared/capacity"
	"rollout/shared/core/health"
	"rollout/shared/fault"
	"rollout/shared/host"
	"rollout/shared/observe"
	"rollout/shared/record"
	"rollout/shared/text"
)

// ExitReason is why a worker ended in an orderly way.
type ExitReason string

// The reasons.
const (
	Requested   ExitReason = "asked" // by a signal or the caller
	Idle        ExitReason = "idle"  // there was no work for it
	MachineLost ExitReason = "unfit" // the machine is preempted, or its GPU has failed
	// GPUFailed says that a GPU failed before the worker had answered anything.
	// The next machine's GPU may fail for the same reason, such as a driver in the
	// machine image.
	GPUFailed ExitReason = "broken"
	// Unusable says that the worker could not work for long. Another worker would
	// not do better on such a machine.
	Unusable ExitReason = "hopeless"
)

// drainWhenIdle drains the worker when it has had no work, or could not take any,
// for the idle time; 0 is never. It returns which of the two, or "" if ctx ended
// first.
func drainWhenIdle(ctx context.Context, w *worker.Worker, idle time.Duration) ExitReason {
	if idle == 0 {
		return ""
	}
	for left := idle; ; {
		select {
		case <-time.After(left):
		case <-ctx.Done():
			return ""
		}
		reason := Idle
		if !w.ExecutorReady() {
			reason = Unusable
		}
		var drained bool
		if left, drained = w.DrainIfIdle(idle); drained {
			return reason
		}
	}
}

// gpuCheckEvery is how often the health of a machine's GPUs is checked.
const gpuCheckEvery = 30 * time.Second

// watchGPUs calls drain when a GPU of the machine must not get new work. It checks
// a machine without GPUs only once.
func watchGPUs(ctx context.Context, m capacity.Source, log *slog.Logger, drain func(reason string)) {
	tick := time.NewTicker(gpuCheckEvery)
	defer tick.Stop()
	for {
		inv, err := m.Inventory(ctx)
		switch {
		case err != nil && ctx.Err() == nil:
			log.WarnContext(ctx, "GPU health can't be read", "error", err)
		case err == nil && len(inv.GPUs) == 0:
			return
		}
		for _, g := range inv.GPUs {
			if g.DrainReason != "" {
				drain("GPU " + g.UUID + ": " + g.DrainReason)
				return
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// maxReason bounds the bytes of the reason for giving up a machine.
const maxReason = 256

// ReportUnusable records, in a heartbeat of an ended worker, that no worker can work
// on this machine of the pool's fleet, and why. Reclaim pauses runs when one
// machine after the other fails like that. It takes the place of what the machine said of its
// boot, if it did.
func ReportUnusable(ctx context.Context, p host.Ports, m capacity.Source, pool, reason string) error {
	machine, err := Options{Machine: m}.describeMachine(ctx)
	if err != nil { // may be part of the problem
		p.Log.InfoContext(ctx, "the machine's inventory can't be read", observe.KeyError, err)
	}
	now := p.Clock.Now().UTC()
	b := health.Heartbeat{Schema: record.Schema, Worker: ulid.Make().String(), Pool: pool, State: health.Gone,
		At: now, DueAt: now, Started: now, Host: machine.Host, PID: machine.PID, CPUs: machine.CPUs,
		GPUs: len(machine.GPUs), Instance: machine.Instance,
		FailureReason: text.Truncate(strings.ToValidUTF8(reason, ""), maxReason, "")}
	if booted, err := endBoot(ctx, p, b); booted || err != nil {
		return err
	}
	_, err = host.Save(ctx, p.Docs, record.HeartbeatKey(b.Worker), b, "")
	return err
}

// endBoot puts the report in the place of what its machine said of its boot, and reports
// whether there was such a thing. That the provider has taken the machine back stands.
func endBoot(ctx context.Context, p host.Ports, report health.Heartbeat) (booted bool, err error) {
	if report.Instance == "" {
		return false, nil
	}
	report.Worker = report.Instance
	_, err = host.Update(ctx, p.Docs, record.HeartbeatKey(report.Worker),
		func(old health.Heartbeat, found bool) (health.Heartbeat, bool, error) {
			booted = found && (old.Boot != nil || old.TakenBack != "")
			if !booted || old.TakenBack != "" { // the provider ended it: the machine has not failed
				return old, false, nil
			}
			return report, true, nil
		})
	return booted, err
}

// bootMargin is how much longer than its servers may take a boot may take.
const bootMargin = 15 * time.Minute

// ReportBoot records how far the boot of this machine of the pool's fleet is, for people. A
// machine that the cloud does not name is Invalid. within is how long the boot may take from
// now on.
func ReportBoot(ctx context.Context, p host.Ports, m capacity.Source, pool string, stage health.BootStage,
	within time.Duration) error {
	machine, err := Options{Machine: m}.describeMachine(ctx)
	if err != nil {
		return err
	}
	if machine.Instance == "" {
		return fault.New(fault.Invalid, "the cloud does not name this machine")
	}
	now := p.Clock.Now().UTC()
	state := health.Booting
	if stage == health.BootReady { // the heartbeats of its workers go on
		state = health.Gone
	}
	b := health.Heartbeat{Schema: record.Schema, Worker: machine.Instance, Pool: pool, State: state, At: now,
		DueAt: now.Add(within + bootMargin), Started: now, Host: machine.Host, GPUs: len(machine.GPUs),
		Instance: machine.Instance, Boot: &health.Boot{Stage: stage, Since: now}}
	_, err = host.Update(ctx, p.Docs, record.HeartbeatKey(b.Worker),
		func(old health.Heartbeat, found bool) (health.Heartbeat, bool, error) {
			if found && old.State == health.Gone { // its end was recorded, or it booted before
				return old, false, nil
			}
			if found {
				b.Started = old.Started
			}
			return b, true, nil
		})
	return err
}
