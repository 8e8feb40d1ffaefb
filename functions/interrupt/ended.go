package interrupt

import (
	"context"
	"fmt"
	"time"

	"rollout/shared/core/health"
	"rollout/shared/fault"
	"rollout/shared/host"
	"rollout/shared/observe"
	"rollout/shared/record"
)

// EndedMachine is the end of a machine of a pool's fleet.
type EndedMachine struct {
	Pool     string
	Instance string // what its cloud calls it
	Reason   string // in its cloud's words
	At       time.Time
}

// maxEventAge is how old the word of a machine's end may be: until then what its
// workers said is there.
const maxEventAge = health.HeartbeatRetention / 2

// Preempted is Drain for a machine that its cloud takes back, whoever is on it. If
// nobody is yet, it is noted that this is no failure of the machine's: poolOf
// names the pool that it came up for, and is NotFound for a machine that is
// somebody else's.
func (i *Interrupter) Preempted(ctx context.Context, instance, reason string, poolOf func(ctx context.Context, instance string) (string, error)) error {
	heard, err := i.drain(ctx, instance, reason)
	if err != nil || heard {
		return err
	}
	pool, err := poolOf(ctx, instance)
	switch {
	case fault.Is(err, fault.NotFound):
		return nil
	case fault.Is(err, fault.Denied): // a deployment without machines may not ask
		i.Log.InfoContext(ctx, "whose machine it is can't be asked for", "instance", instance, observe.KeyError, err)
		return nil
	case err != nil:
		return fault.Wrap(err, "whose machine %s is", instance)
	}
	return i.recordFailure(ctx, EndedMachine{pool, instance, reason, i.Clock.Now()}, "")
}

// Ended hears that a machine was ended that had work: by itself, or because it
// does not go on. One that no word was ever heard of has given up, whatever it
// died of: else one would come up after the other for as long as a run is open.
func (i *Interrupter) Ended(ctx context.Context, e EndedMachine) error {
	if e.Instance == "" || e.Pool == "" {
		return fault.New(fault.Invalid, "the end of no machine, or of no pool's: %+v", e)
	}
	if age := i.Clock.Now().Sub(e.At).Abs(); age > maxEventAge {
		i.Log.WarnContext(ctx, "a machine ended too long ago to say whether it was ever heard of", "instance", e.Instance, "age", age)
		return nil
	}
	heard := false
	if err := i.each(ctx, e.Instance, func(health.Heartbeat) { heard = true }); err != nil || heard {
		return err
	}
	i.Log.WarnContext(ctx, "a machine ended without a word", observe.KeyPool, e.Pool, "instance", e.Instance, observe.KeyReason, e.Reason)
	return i.recordFailure(ctx, e, fmt.Sprintf("it ended without a word; look at what it showed: aws ec2 get-console-output --latest --instance-id %s (its end was in response to: %s)", e.Instance, e.Reason))
}

// LaunchFailed notes why no machine of the pool could come up, for people who ask. It
// passes by itself, or it does not: more than asking again its fleet can't do.
func (i *Interrupter) LaunchFailed(ctx context.Context, pool, reason string, at time.Time) error {
	_, err := host.Update(ctx, i.Docs, record.FleetKey(pool), func(f record.Fleet, _ bool) (record.Fleet, bool, error) {
		if !at.After(f.AbsentAt) {
			return f, false, nil
		}
		return record.Fleet{Schema: record.Schema, AbsentAt: at.UTC(), Absent: reason}, true, nil
	})
	return fault.Wrap(err, "note that no machine of pool %s can come up", pool)
}

// recordFailure leaves the machine's last word in its stead, once.
func (i *Interrupter) recordFailure(ctx context.Context, e EndedMachine, gaveUp string) error {
	now := i.Clock.Now().UTC()
	b := health.Heartbeat{Schema: record.Schema, Worker: e.Instance, Pool: e.Pool, State: health.Gone, At: now, DueAt: now, Started: now, Instance: e.Instance, FailureReason: gaveUp}
	_, err := host.Save(ctx, i.Docs, record.HeartbeatKey(b.Worker), b, "")
	if fault.Is(err, fault.Conflict) { // it was told twice
		return nil
	}
	return fault.Wrap(err, "leave the last word of %s", e.Instance)
}
