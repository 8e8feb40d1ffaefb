package interrupt

import (
	"context"
	"fmt"
	"time"

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

// preempted drains the workers of a machine that its provider takes back. If they have not
// answered anything, it records the machine as taken back: the pool then waits before it asks
// for another one, but its runs are not paused for that. A machine in no pool's fleet, such as
// one that a user has started, counts for no pool.
func (i *Interrupter) preempted(ctx context.Context, n cloud.MachineNotice) error {
	seen, err := i.drain(ctx, n)
	if err != nil || seen.rows > 0 || seen.recorded {
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
	return i.recordEnd(ctx, ending{pool: pool, machine: n.Machine, takenBack: n.Reason})
}

// terminated records a failed boot if the machine ended before its workers answered anything,
// whatever ended it. Otherwise one machine after another would start and fail for as long as
// a run is open. A machine whose newest worker left in order had no work.
func (i *Interrupter) terminated(ctx context.Context, pool string, n cloud.MachineNotice) error {
	if n.Machine == "" {
		return fault.New(fault.Invalid, "the notice names no machine: %+v", n)
	}
	if age := i.Clock.Now().Sub(n.At).Abs(); age > maxEventAge {
		i.Log.WarnContext(ctx, "the machine ended too long ago to know whether it had workers",
			"instance", n.Machine, "age", age)
		return nil
	}
	var seen machineSeen
	err := i.each(ctx, n.Machine, seen.add)
	if err != nil || seen.rows > 0 || seen.recorded || seen.left {
		return err
	}
	did := "any worker sent a heartbeat"
	if seen.heartbeats > 0 {
		did = "its workers answered anything"
	}
	i.Log.WarnContext(ctx, "a machine ended before "+did,
		observe.KeyPool, pool, "instance", n.Machine, observe.KeyReason, n.Reason)
	return i.recordEnd(ctx, ending{pool: pool, machine: n.Machine, failure: fmt.Sprintf(
		"it ended before %s; look at what it printed: %s (it ended in response to: %s)",
		did, i.options.Hints.ConsoleOutput(n.Machine), n.Reason)})
}

// machineSeen is what the heartbeats of a machine's workers say of it.
type machineSeen struct {
	heartbeats int // of its workers
	rows       int64
	newest     time.Time // when the newest of its workers started
	left       bool      // that one has left in order; those that started with it, too
	recorded   bool      // its end is recorded
}

func (m *machineSeen) add(b health.Heartbeat) {
	switch {
	case b.FailureReason != "":
		m.recorded = true
		return
	case b.Boot != nil: // it says how far its boot is
		return
	case b.Worker == b.Instance:
		m.recorded = true
		return
	}
	left := b.State == health.Gone
	switch {
	case m.heartbeats == 0 || b.Started.After(m.newest):
		m.newest, m.left = b.Started, left
	case b.Started.Equal(m.newest):
		m.left = m.left && left
	}
	m.heartbeats++
	m.rows += b.Load.Rows
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

// ending is the end of a machine that had not answered anything, by its own failure or because
// its provider took it back.
type ending struct{ pool, machine, failure, takenBack string }

// recordEnd writes a final heartbeat in place of the machine, once. It takes the place of the
// one that said how far the machine's boot was.
func (i *Interrupter) recordEnd(ctx context.Context, e ending) error {
	now := i.Clock.Now().UTC()
	b := health.Heartbeat{
		Schema: record.Schema, Worker: e.machine, Pool: e.pool, State: health.Gone,
		At: now, DueAt: now, Started: now, Instance: e.machine, FailureReason: e.failure, TakenBack: e.takenBack,
	}
	_, err := host.Update(ctx, i.Docs, record.HeartbeatKey(b.Worker),
		func(old health.Heartbeat, found bool) (health.Heartbeat, bool, error) {
			if found && (old.Boot == nil || old.FailureReason != "" || old.TakenBack != "") { // it was recorded before
				return old, false, nil
			}
			return b, true, nil
		})
	return fault.Wrap(err, "record the end of %s", e.machine)
}
