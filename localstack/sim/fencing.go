package sim

import (
	"context"
	"encoding/json"
	"strings"
	"time"

	"rollout/shared/core/health"
	"rollout/shared/core/shard"
	"rollout/shared/document"
	"rollout/shared/record"
)

// lease is what the audit knows of a worker's lease, by the true time.
type lease struct {
	process *process
	sent    time.Time        // when the last heartbeat that was accepted was sent
	beat    health.Heartbeat // the last one that was accepted
}

// workerDocuments are the documents of a process, behind its retries. They check that a
// worker begins no write without a lease.
type workerDocuments struct {
	document.Store
	process *process
}

func (d workerDocuments) Create(ctx context.Context, key string, value []byte) (document.Revision, error) {
	d.process.world.audit.begin(d.process, key, value)
	return d.Store.Create(ctx, key, value)
}

func (d workerDocuments) Replace(
	ctx context.Context, key string, value []byte, old document.Revision,
) (document.Revision, error) {
	d.process.world.audit.begin(d.process, key, value)
	return d.Store.Replace(ctx, key, value, old)
}

// begin checks that the lease of a worker that begins a write of a shard or a heartbeat
// has not ended (I11). A worker that ends in order has no shard and needs none.
func (a *audit) begin(p *process, key string, value []byte) {
	isBeat := strings.HasPrefix(key, record.HeartbeatKey(""))
	if !isBeat && !strings.HasPrefix(key, "shard/") {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	l := a.leases[p.name]
	if l == nil || p.dead.Load() {
		return
	}
	age := time.Since(l.sent)
	if age < a.w.timings.SelfFence {
		return
	}
	var b health.Heartbeat
	if !isBeat || json.Unmarshal(value, &b) != nil || b.State != health.Gone {
		a.breakf("I11: %s begins to write %s %s after its last heartbeat was sent", p.name, key, age)
	}
}

// heartbeat renews the lease of a worker by the heartbeat that was accepted.
func (a *audit) heartbeat(p *process, key string, value []byte) {
	var b health.Heartbeat
	if key != record.HeartbeatKey(p.name) || json.Unmarshal(value, &b) != nil {
		return
	}
	if sent := b.At.Add(-p.skew); a.leases[p.name] == nil || sent.After(a.leases[p.name].sent) {
		a.leases[p.name] = &lease{p, sent, b}
	}
}

// holds says of the holder of a Running shard that it still holds it, by the true time
// and its last heartbeat; false if it has died, has ended in order, or has lost its lease
// for so long that all clocks agree about it.
func (a *audit) holds(d shard.Doc) bool {
	l := a.leases[d.Worker]
	if l == nil || l.process.dead.Load() || l.beat.State == health.Gone {
		return false
	}
	t := a.w.timings
	if time.Since(l.sent) >= 2*t.Interval+t.FailureTimeout-t.SkewBudget {
		return false
	}
	return l.beat.HoldsClaim(d.Run, d.Shard, d.Attempt) || !l.beat.At.After(d.ClaimedAt)
}

// fencing checks a write of a shard's document that was Running: its holder alone may
// change it. Another worker may claim it, and coordinate may seal it, when the holder
// does not hold it any more. At an end coordinate waits for living holders for the grace.
func (a *audit) fencing(p *process, was, d shard.Doc) {
	if was.State != shard.Running || was.Worker == p.name || p.name == thief {
		return
	}
	switch {
	case d.Attempt == was.Attempt && d.Sealed == "":
		a.breakf("I3: %s made shard %d of %s %s", p.name, d.Shard, was.Worker, d.State)
	case d.Attempt != was.Attempt && a.holds(was):
		a.breakf("I3: %s claimed shard %d of %s, which holds it", p.name, d.Shard, was.Worker)
	case d.Sealed != "" && a.holds(was) && !a.leases[was.Worker].process.wasFrozen.Load():
		if end, known := a.w.spending.endOf(d.Run); !known || time.Since(end) < grace {
			a.breakf("%s sealed shard %d of %s, which holds it and has its grace", p.name, d.Shard, was.Worker)
		}
	}
}

// kept checks that a write of a shard's document keeps the rows that are committed (I2).
func (a *audit) kept(p *process, was, d shard.Doc) {
	lost := d.Counts.OK < was.Counts.OK
	if d.Result == nil && was.Checkpoint != nil {
		lost = lost || d.Checkpoint == nil
	}
	if lost {
		a.breakf("I2: %s wrote shard %d as %s with %d answers and the checkpoint %v; it had %d in %v", p.name, d.Shard,
			d.State, d.Counts.OK, d.Checkpoint, was.Counts.OK, was.Checkpoint)
	}
}
