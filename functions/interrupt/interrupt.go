// Package interrupt passes on what a cloud says of machines that are or will be
// gone: their workers shall drain, and one that nobody ever heard of has given
// up.
//
// A worker hears most of it from its own machine, and sooner; this is for what
// it misses, and costs it nothing if it did not: five notices are one drain. And
// a machine on which nobody can work says so itself, if it can say anything;
// where it can't, its cloud alone knows that it was there. Whether a worker is
// dead its heartbeat says alone, whatever the cloud says of its machine.
package interrupt

import (
	"context"
	"errors"

	"rollout/shared/core/health"
	"rollout/shared/fault"
	"rollout/shared/host"
	"rollout/shared/observe"
	"rollout/shared/record"
)

// Interrupter marks workers. Safe for concurrent use.
type Interrupter struct{ host.Ports }

// New returns an interrupter over the ports.
func New(p host.Ports) *Interrupter { return &Interrupter{p.WithSource("interrupt")} }

// Drain asks the workers on a machine, by what its cloud calls it, to drain. A
// machine without workers of ours is left alone: most are somebody else's.
func (i *Interrupter) Drain(ctx context.Context, instance, reason string) error {
	_, err := i.drain(ctx, instance, reason)
	return err
}

// drain is Drain, and reports whether the machine was ever heard of.
func (i *Interrupter) drain(ctx context.Context, instance, reason string) (heard bool, err error) {
	if instance == "" {
		return false, fault.New(fault.Invalid, "no machine is named")
	}
	found := 0
	var failed error // one worker's trouble must not hide another's
	err = i.each(ctx, instance, func(b health.Heartbeat) {
		heard = true
		if b.State != health.Gone {
			found++
			failed = errors.Join(failed, i.requestDrain(ctx, b.Worker, reason))
		}
	})
	if found == 0 && err == nil {
		i.Log.InfoContext(ctx, "no worker is on the machine", "instance", instance, observe.KeyReason, reason)
	}
	return heard, errors.Join(failed, err)
}

// each yields the heartbeats of a machine's workers, its last words included.
func (i *Interrupter) each(ctx context.Context, instance string, yield func(health.Heartbeat)) error {
	err := host.Each(ctx, i.Docs, record.HeartbeatPrefix, func(b health.Heartbeat) error {
		if b.Instance == instance {
			yield(b)
		}
		return ctx.Err()
	})
	if fault.Is(err, fault.Corrupt) || fault.Is(err, fault.Invalid) {
		i.Log.WarnContext(ctx, "a heartbeat can't be read", observe.KeyError, err)
		return nil // a worker of another version; it hides no other
	}
	return err
}

// requestDrain asks one worker to drain, if nobody did.
func (i *Interrupter) requestDrain(ctx context.Context, worker, reason string) error {
	first := false
	_, err := host.Update(ctx, i.Docs, record.WorkerKey(worker), func(m record.WorkerMark, _ bool) (record.WorkerMark, bool, error) {
		m, first = m.Drain(reason)
		return m, first, nil
	})
	if err == nil && first {
		i.Log.InfoContext(ctx, "worker shall drain", observe.KeyWorker, worker, observe.KeyReason, reason)
	}
	return fault.Wrap(err, "mark worker %s", worker)
}
