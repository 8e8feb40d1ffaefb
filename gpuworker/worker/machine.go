package worker

import (
	"sync"
	"time"

	"rollout/shared/core/cost"
)

// machine counts the time of the worker's machine. It is safe for concurrent use. A nil
// machine counts nothing.
type machine struct {
	kind  string // a key of cost.Uses
	price float64
	now   func() time.Time

	mu    sync.Mutex
	meter *cost.Meter
}

// newMachine returns nil for a machine whose kind is not known.
func newMachine(cfg Config, now func() time.Time) *machine {
	kind := cfg.Machine.Kind.Key()
	if kind == "" {
		return nil
	}
	return &machine{kind: kind, price: cfg.Price, now: now,
		meter: cost.NewMeter(cfg.Machine.Launched, now(), cfg.Price, cfg.Machine.Workers)}
}

// ready says that the engine can answer.
func (m *machine) ready() {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.meter.Ready(m.now())
}

// report returns the machine's kind and price, and the time that no shard has taken, for
// heartbeats.
func (m *machine) report() (kind string, price float64, unclaimed cost.Use) {
	if m == nil {
		return "", 0, cost.Use{}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.kind, m.price, m.meter.Unclaimed(m.now())
}

// use returns what a shard of a run that was created at that time takes. before are the
// uses of its earlier attempts.
func (m *machine) use(created time.Time, before cost.Uses) machineUse {
	return machineUse{machine: m, created: created, before: before}
}

// machineUse is the time that a shard takes of machines. It is safe for concurrent use. One
// without a machine, as the zero value, counts nothing.
type machineUse struct {
	*machine
	created time.Time
	before  cost.Uses  // of earlier attempts
	share   cost.Share // guarded by machine.mu
}

// begin counts a request that begins at now.
func (u *machineUse) begin(now time.Time) {
	if u.machine == nil {
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.meter.Begin(now, &u.share, u.created)
}

// end counts the end of a request.
func (u *machineUse) end() {
	if u.machine == nil {
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.meter.End(u.now(), &u.share)
}

// uses returns what all attempts of the shard have taken until now, by kind.
func (u *machineUse) uses() cost.Uses {
	if u.machine == nil {
		return u.before
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.before.With(u.kind, u.meter.Use(u.now(), &u.share))
}

// ofKind returns what all attempts have taken of machines of the present one's kind.
func (u *machineUse) ofKind() cost.Use {
	if u.machine == nil {
		return cost.Use{}
	}
	return u.uses()[u.kind]
}
