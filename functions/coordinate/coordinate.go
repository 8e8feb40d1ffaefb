// Package coordinate is the single writer of a run's progress: it takes events
// in batches, lets shared/core/run decide, and performs what was decided.
//
//	load ──▶ (perform inherited effects) ──▶ step ──▶ save (CAS) ──▶ perform ──▶ acknowledge
//	  ▲                                                 │ conflict
//	  └─────────────────────────────────────────────────┘
//
// It keeps no state that matters: any number of coordinators may run, ordered
// by compare-and-swap alone. It never answers an item, reads an input line or
// touches a result.
package coordinate

import (
	"context"
	"encoding/json"
	"log/slog"
	"slices"
	"sync"
	"time"

	"rollout/shared/config"
	"rollout/shared/core/health"
	"rollout/shared/core/identity"
	"rollout/shared/core/run"
	"rollout/shared/document"
	"rollout/shared/fault"
	"rollout/shared/host"
	"rollout/shared/input"
	"rollout/shared/observe"
	"rollout/shared/record"
)

// maxRuns bounds how many runs' states are remembered between batches.
const maxRuns = 256

// Coordinator steps runs. Safe for concurrent use; steps of one run that race
// are ordered by the document.
type Coordinator struct {
	host.Ports
	index   *input.Index
	timings health.Timings
	grace   time.Duration
	hooks   Hooks
	shared  bool
	serves  func(pool string) bool

	mu   sync.Mutex
	runs map[identity.RunID]loaded
}

// loaded is a run as last seen. performed says that this process performed
// the state's effects; otherwise they are inherited.
type loaded struct {
	manifest  record.Manifest
	state     run.State
	rev       document.Revision
	performed bool
}

// Hooks are called by a coordinator, and must not block. Nil ones are not.
type Hooks struct {
	OnSaved func(run.State)       // with every state that was saved here
	OnOpen  func(record.Manifest) // with every run that has not ended and that something is heard of here
	// OnSent is called when work of a running run was sent to the pool, and says
	// how many of the run's shards are open.
	OnSent func(pool string, open int)
}

// New returns a coordinator. grace is how long requests in flight may take at
// a pause or end of a run that does not say.
func New(p host.Ports, ix *input.Index, t health.Timings, grace time.Duration, hears Hooks) *Coordinator {
	if hears.OnSaved == nil {
		hears.OnSaved = func(run.State) {}
	}
	if hears.OnOpen == nil {
		hears.OnOpen = func(record.Manifest) {}
	}
	if hears.OnSent == nil {
		hears.OnSent = func(string, int) {}
	}
	return &Coordinator{hooks: hears, Ports: p.WithSource("coordinate"), index: ix, timings: t, grace: grace,
		serves: func(string) bool { return true }, runs: map[identity.RunID]loaded{}}
}

// Serving makes c the coordinator of an installation that has these pools alone,
// and no queues for others: a run whose pool was taken out of the config pauses,
// and says why.
func (c *Coordinator) Serving(pools []config.Pool) *Coordinator {
	c.serves = func(pool string) bool {
		return slices.ContainsFunc(pools, func(p config.Pool) bool { return p.Name == pool })
	}
	return c
}

// maxTransitions bounds the steps of one call: each but the first follows from
// effects of the one before (sealed shards) or from a lost race.
const maxTransitions = 64

// Apply lets a run take events. It returns those that no run of this plan can
// have caused. An error leaves the events to be delivered again.
func (c *Coordinator) Apply(ctx context.Context, id identity.RunID, evs []run.Event) (rejected []run.Event, err error) {
	pending := evs
	for range maxTransitions {
		began := c.Clock.Now()
		l, err := c.load(ctx, id)
		if err != nil {
			return nil, err
		}
		if l.manifest.Refused != "" {
			return nil, nil
		}
		if !l.state.Phase.Ended() {
			c.hooks.OnOpen(l.manifest)
		}
		if !l.performed {
			if moved, err := c.waitForPeer(ctx, l); err != nil {
				return nil, err
			} else if moved {
				c.forget(id)
				continue
			}
			follow, err := c.perform(ctx, l)
			if err != nil {
				c.forget(id)
				return nil, fault.Wrap(err, "perform inherited effects of run %s", id)
			}
			c.markPerformed(l)
			pending = append(pending[:len(pending):len(pending)], follow...)
		}
		world, err := c.observe(ctx, l)
		if err != nil {
			return nil, err
		}
		now := c.Clock.Now()
		next, refused := run.Step(l.state, world, c.rules(l.manifest), pending, now)
		if unchanged(l.state, next) {
			// Nothing to save, and so no compare-and-swap that would find out
			// that the remembered state is old news.
			current, err := c.current(ctx, l)
			if err != nil {
				return nil, err
			}
			if !current {
				c.forget(id)
				continue
			}
			return append(rejected, refused...), nil
		}
		follow, saved, err := c.saveAndPerform(ctx, began, l, next, pending)
		if err != nil {
			return nil, err
		}
		if !saved {
			continue
		}
		rejected, pending = append(rejected, refused...), follow
		if len(pending) == 0 {
			return rejected, nil
		}
	}
	return nil, fault.New(fault.Unavailable, "run %s took %d steps at once and is not settled", id, maxTransitions)
}

// saveAndPerform saves what was decided of the events and performs it. It returns what
// follows; saved is false if somebody else was faster.
func (c *Coordinator) saveAndPerform(ctx context.Context, began time.Time, l *loaded, next run.State, evs []run.Event) (follow []run.Event, saved bool, err error) {
	ctx, span := c.StartSpan(ctx, began, "coordinate step", next.Run, slog.String(observe.KeyPhase, string(next.Phase)), slog.Int("events", len(evs)))
	defer func() { span.End(err) }()
	lost := lostShards(l.state, next, evs)
	if err := c.save(ctx, l, next); err != nil {
		c.forget(next.Run)
		if fault.Is(err, fault.Conflict) {
			return nil, false, nil
		}
		return nil, false, err
	}
	for _, e := range lost {
		c.Observe(ctx, e)
	}
	follow, err = c.perform(ctx, l)
	if err != nil {
		return nil, true, fault.Wrap(err, "perform effects of run %s", next.Run)
	}
	c.markPerformed(l)
	if len(follow) == 0 { // else the next step says so
		c.clearEffects(ctx, l)
	}
	return follow, true, nil
}

// rules are the run's own limits.
func (c *Coordinator) rules(m record.Manifest) run.Rules {
	l := m.Config.Limits
	r := run.Rules{Grace: l.Grace.Std(), Settle: 2*c.timings.Interval + c.timings.SkewBudget, Tokens: l.Tokens,
		FailFast: l.FailFast, FailedShards: l.FailedShardsInARow}
	if r.Grace == 0 {
		r.Grace = c.grace
	}
	if l.Deadline > 0 {
		r.Deadline = m.CreatedAt.Add(l.Deadline.Std())
	}
	return r
}

// load returns the run as remembered, or reads it. A remembered state that is
// stale loses at its save.
func (c *Coordinator) load(ctx context.Context, id identity.RunID) (*loaded, error) {
	c.mu.Lock()
	known, ok := c.runs[id]
	c.mu.Unlock()
	if ok {
		return &known, nil
	}
	m, err := host.LoadManifest(ctx, c.Docs, id)
	if err != nil {
		return nil, err
	}
	l := &loaded{state: run.New(id), manifest: m}
	l.rev, _, err = host.Load(ctx, c.Docs, record.CoordinatorKey(id), &l.state)
	if err != nil {
		return nil, err
	}
	l.performed = len(l.state.Effects) == 0
	c.remember(id, l)
	return l, nil
}

// current reports whether the remembered state still is the saved one.
func (c *Coordinator) current(ctx context.Context, l *loaded) (bool, error) {
	d, err := c.Docs.Get(ctx, record.CoordinatorKey(l.state.Run))
	if fault.Is(err, fault.NotFound) {
		return l.rev == "", nil
	}
	return d.Revision == l.rev, err
}

// remember keeps a copy of l for the next call.
func (c *Coordinator) remember(id identity.RunID, l *loaded) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, ok := c.runs[id]; !ok && len(c.runs) >= maxRuns {
		for other := range c.runs { // any one: it is only read again
			delete(c.runs, other)
			break
		}
	}
	c.runs[id] = *l
}

// markPerformed notes that the effects of the state were performed here.
func (c *Coordinator) markPerformed(l *loaded) {
	l.performed = true
	c.mu.Lock()
	defer c.mu.Unlock()
	if known, ok := c.runs[l.state.Run]; ok && known.rev == l.rev {
		known.performed = true
		c.runs[l.state.Run] = known
	}
}

func (c *Coordinator) forget(id identity.RunID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.runs, id)
}

func (c *Coordinator) save(ctx context.Context, l *loaded, next run.State) error {
	rev, err := host.Save(ctx, c.Docs, record.CoordinatorKey(next.Run), next, l.rev)
	if err != nil {
		return err
	}
	if next.Phase != l.state.Phase {
		c.Observe(ctx, observe.RunPhase{Run: next.Run, Phase: string(next.Phase), Previous: string(l.state.Phase), Reason: string(next.Reason), Detail: next.Message})
	}
	if next.Complete && !l.state.Complete {
		c.Observe(ctx, observe.RunPlanned{Run: next.Run, Shards: next.Shards, Items: next.Items})
	}
	l.state, l.rev, l.performed = next, rev, len(next.Effects) == 0
	c.hooks.OnSaved(next)
	if next.Phase.Ended() {
		c.forget(next.Run)
	} else {
		c.remember(next.Run, l)
	}
	return nil
}

// lostShards are the shards that a step from a to b sends again because they were
// lost. What is no news in a is none.
func lostShards(a, b run.State, evs []run.Event) (out []observe.ShardLost) {
	told := map[int]bool{}
	for _, e := range evs {
		if e.Kind != run.ShardLost || told[e.Shard] {
			continue
		}
		before, sent := a.InFlight.Generation(e.Shard)
		after, _ := b.InFlight.Generation(e.Shard)
		if sent && before == e.Generation && after > before {
			told[e.Shard] = true
			out = append(out, observe.ShardLost{Run: b.Run, Shard: e.Shard, Generation: e.Generation, Reason: e.Why})
		}
	}
	return out
}

// unchanged reports whether a step from a to b changed nothing worth a save. What
// is to be performed always is.
func unchanged(a, b run.State) bool {
	if len(b.Effects) > 0 {
		return false
	}
	a.Steps, a.SavedAt = b.Steps, b.SavedAt
	x, errX := json.Marshal(a)
	y, errY := json.Marshal(b)
	return errX == nil && errY == nil && string(x) == string(y)
}
