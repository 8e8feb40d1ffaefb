package coordinate

import (
	"context"
	"encoding/json"
	"log/slog"
	"slices"
	"sync"
	"time"

	"rollout/shared/config"
	"rollout/shared/core/cost"
	"rollout/shared/core/health"
	"rollout/shared/core/identity"
	"rollout/shared/core/run"
	"rollout/shared/core/scaling"
	"rollout/shared/document"
	"rollout/shared/fault"
	"rollout/shared/host"
	"rollout/shared/input"
	"rollout/shared/kind"
	"rollout/shared/observe"
	"rollout/shared/queue"
	"rollout/shared/record"
)

// maxRuns bounds the runs whose states are remembered between batches.
const maxRuns = 256

// Coordinator steps runs. It is safe for concurrent use: the coordinator
// document orders steps of one run that race.
type Coordinator struct {
	host.Ports
	index *input.Index
	attrs *attributes
	opts  Options
	pace  *pace
	beats *heartbeats

	mu   sync.Mutex
	runs map[identity.RunID]loaded
}

// loaded is a run as last loaded or saved here.
type loaded struct {
	manifest  record.Manifest
	kind      kind.Kind
	state     run.State
	rev       document.Revision
	performed bool // this process has performed the state's effects; otherwise they are inherited
}

// Options are what a coordinator takes besides its ports.
type Options struct {
	Timings health.Timings
	// Grace is how long requests in flight may take when a run pauses or ends,
	// for runs whose config does not say.
	Grace time.Duration
	Hooks Hooks
	// Shared is for several coordinators that receive the same runs' events, as
	// in clouds. A coordinator then leaves the effects of a recent state to the
	// process that saved it. That costs a write for each step, and avoids that
	// every process which loads the state sends the messages again.
	Shared bool
	// MostSaves bounds how often this process saves a run's state in 10 seconds, for
	// stores that take about one write a second to a document. Steps beyond it wait.
	// 0 means any number.
	MostSaves int
	// Pools are the pools that have work queues. A run of any other pool, which
	// the config no longer has, pauses and says why. Nil means that every pool
	// has queues, as in a local installation; an empty list means that none has.
	Pools []config.Pool
	Kinds kind.Table
	// Prices say what the control plane costs, which runs with a budget in dollars count.
	Prices cost.Prices
	// StepContext returns the context of a run's step in a batch, for clouds that
	// count a chain of calls by what a message brings: cause is the run's message
	// that the step counts as caused by. Nil means the context of the batch.
	StepContext func(ctx context.Context, cause queue.Message) context.Context
}

// Hooks are optional callbacks of a coordinator. They must not block.
type Hooks struct {
	OnSaved func(run.State)       // after every save of a state
	OnOpen  func(record.Manifest) // when an event of a run arrives that has not ended
	// OnSent is called after work of a running run was sent to its pool, with all shards of the
	// run that are not done: once for each pool at the end of a call of Apply, however many steps
	// it took. What those in flight have spent of a budget is not known here.
	OnSent func(pool string, n scaling.Demand)
	// OnStopping is called when a run begins to pause or to end, after its control
	// document says so.
	OnStopping func(identity.RunID)
}

// New returns a coordinator that finds shards through ix.
func New(p host.Ports, ix *input.Index, o Options) *Coordinator {
	if o.Hooks.OnSaved == nil {
		o.Hooks.OnSaved = func(run.State) {}
	}
	if o.Hooks.OnOpen == nil {
		o.Hooks.OnOpen = func(record.Manifest) {}
	}
	if o.Hooks.OnSent == nil {
		o.Hooks.OnSent = func(string, scaling.Demand) {}
	}
	if o.StepContext == nil {
		o.StepContext = func(ctx context.Context, _ queue.Message) context.Context { return ctx }
	}
	if o.Hooks.OnStopping == nil {
		o.Hooks.OnStopping = func(identity.RunID) {}
	}
	return &Coordinator{Ports: p.WithSource("coordinate"), index: ix, attrs: newAttributes(ix), opts: o,
		pace: newPace(p.Clock, o.MostSaves), beats: &heartbeats{docs: p.Docs, maxAge: o.Timings.Interval / 2},
		runs: map[identity.RunID]loaded{}}
}

// serves reports whether the pool has work queues.
func (c *Coordinator) serves(pool string) bool {
	return c.opts.Pools == nil || slices.ContainsFunc(c.opts.Pools, func(p config.Pool) bool { return p.Name == pool })
}

// maxTransitions bounds the steps of one call, with one more for scanShards shards
// of the run. Every step after the first follows from effects of the one before, such
// as sealed shards or a scan to continue, or from a conflict.
const (
	maxTransitions = 64
	scanShards     = 1024
)

// Apply applies events to a run: see the steps in the package comment. It
// returns the events that contradict the run's plan, and those that the state has no
// room for. After an error the events are to be delivered again.
func (c *Coordinator) Apply(ctx context.Context, id identity.RunID, evs []run.Event) (rejected []run.Event, err error) {
	pending := evs
	var demand sentWork
	defer func() { c.tell(demand) }()
	for n, most := 0, maxTransitions; n < most; n++ {
		began := c.Clock.Now()
		l, err := c.load(ctx, id)
		if err != nil {
			return nil, err
		}
		if l.manifest.Refused != "" {
			return nil, nil
		}
		most = maxTransitions + l.state.Shards/scanShards
		if !l.state.Phase.Ended() {
			c.opts.Hooks.OnOpen(l.manifest)
		}
		if !l.performed {
			follow, moved, err := c.inherit(ctx, l, &demand)
			if err != nil {
				return nil, err
			}
			if moved {
				continue
			}
			pending = append(pending[:len(pending):len(pending)], follow...)
		}
		rules := c.rules(l)
		observed, pruned, err := c.observe(ctx, l, rules, pending)
		if err != nil {
			return nil, err
		}
		pending = append(pruned, pending...)
		if pending, err = c.withRoles(ctx, l.manifest, pending); err != nil {
			return nil, err
		}
		if pending, err = c.withAnswers(ctx, l.manifest, pending); err != nil {
			return nil, err
		}
		next, refused := run.Step(l.state, observed, rules, pending, c.Clock.Now())
		if unchanged(l.state, next) {
			// Without a save there is no compare-and-swap that finds out whether the
			// remembered state is stale.
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
		if waited, err := c.pace.wait(ctx, id); err != nil {
			return nil, fault.WithKind(fault.Unavailable, err, "wait to save run %s", id)
		} else if waited {
			continue // decide by what is true now
		}
		follow, saved, err := c.saveAndPerform(ctx, began, l, next, pending, &demand)
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
	return nil, fault.New(fault.Unavailable, "run %s took many steps at once and is not settled", id)
}

// inherit performs the effects of a state that another process, or an earlier
// call that failed, has saved. It returns follow-up events. moved reports that
// the saved state is a newer one: load it and begin again.
func (c *Coordinator) inherit(ctx context.Context, l *loaded, demand *sentWork) (
	follow []run.Event, moved bool, err error) {
	id := l.state.Run
	moved, err = c.waitForPeer(ctx, l)
	if err != nil {
		return nil, false, err
	}
	if moved {
		c.forget(id)
		return nil, true, nil
	}
	follow, err = c.perform(ctx, l, demand)
	if err != nil {
		c.forget(id)
		return nil, false, fault.Wrap(err, "perform inherited effects of run %s", id)
	}
	c.markPerformed(l)
	return follow, false, nil
}

// saveAndPerform saves the next state and performs its effects. It returns the
// follow-up events. saved is false if another process saved first.
func (c *Coordinator) saveAndPerform(ctx context.Context, began time.Time, l *loaded, next run.State,
	evs []run.Event, demand *sentWork) (follow []run.Event, saved bool, err error) {
	ctx, span := c.StartSpan(ctx, began, "coordinate step", next.Run,
		slog.String(observe.KeyPhase, string(next.Phase)), slog.Int("events", len(evs)))
	defer func() { span.End(err) }()
	before := l.state
	lost, more := lostShards(l.state, next, evs), goOn(l, next)
	stopping := next.Phase != l.state.Phase && (next.Phase == run.Pausing || next.Phase == run.Ending)
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
	if entryChanged(before, next) {
		if _, err := c.enter(ctx, l, l.manifest.NeededPools(next)); err != nil {
			return nil, true, err
		}
	}
	follow, err = c.perform(ctx, l, demand)
	if err != nil {
		return nil, true, fault.Wrap(err, "perform effects of run %s", next.Run)
	}
	if err := c.askForFacts(ctx, l.manifest, before, next); err != nil {
		return nil, true, fault.Wrap(err, "ask for the facts of run %s", next.Run)
	}
	if stopping {
		c.opts.Hooks.OnStopping(next.Run)
	}
	follow = append(follow, more...)
	c.markPerformed(l)
	if len(follow) == 0 { // otherwise the save of the next step replaces them
		c.clearEffects(ctx, l)
	}
	return follow, true, nil
}

// rules are the limits by which the run's steps are decided.
func (c *Coordinator) rules(of *loaded) run.Rules {
	l, t := of.manifest.Config.Limits, c.opts.Timings
	r := run.Rules{Grace: l.Grace.Std(), Settle: 2*t.Interval + t.SkewBudget,
		Budget: cost.LimitOf(l.Tokens, l.Dollars), Prices: c.opts.Prices,
		FailFast: l.FailFast, FailedShards: l.FailedShardsInARow, FailedShare: l.FailedShare,
		Constraints: of.kind.ConstraintsOf(of.manifest.Config), OutputRoles: of.manifest.OutputRoles()}
	if r.Grace == 0 {
		r.Grace = c.opts.Grace
	}
	if l.Deadline > 0 {
		r.Deadline = of.manifest.CreatedAt.Add(l.Deadline.Std())
	}
	return r
}

// load returns the run from memory, or reads it. A remembered state that is
// stale fails at its save.
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
	if m.Refused == "" {
		if l.kind, err = c.opts.Kinds.Of(m.Kind); err != nil {
			return nil, err
		}
	}
	l.rev, _, err = host.Load(ctx, c.Docs, record.CoordinatorKey(id), &l.state)
	if err != nil {
		return nil, err
	}
	l.performed = len(l.state.Effects) == 0
	c.pace.loaded(id, l.state.SavedAt)
	c.remember(id, l)
	return l, nil
}

// current reports whether l is the state that is saved now.
func (c *Coordinator) current(ctx context.Context, l *loaded) (bool, error) {
	d, err := c.Docs.Get(ctx, record.CoordinatorKey(l.state.Run))
	if fault.Is(err, fault.NotFound) {
		return l.rev == "", nil
	}
	return d.Revision == l.rev, err
}

// remember keeps a copy of l for the next call. When the memory is full it
// drops some other run, which costs one read.
func (c *Coordinator) remember(id identity.RunID, l *loaded) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, ok := c.runs[id]; !ok && len(c.runs) >= maxRuns {
		for other := range c.runs {
			delete(c.runs, other)
			break
		}
	}
	c.runs[id] = *l
}

// markPerformed notes that this process has performed the state's effects.
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

// save writes the next state over the loaded one and makes l that state.
func (c *Coordinator) save(ctx context.Context, l *loaded, next run.State) error {
	rev, err := host.Save(ctx, c.Docs, record.CoordinatorKey(next.Run), next, l.rev)
	if err != nil {
		return err
	}
	c.pace.saved(next.Run)
	if next.Phase != l.state.Phase {
		c.Observe(ctx, observe.RunPhase{Run: next.Run, Phase: string(next.Phase), Previous: string(l.state.Phase),
			Reason: string(next.Reason), Detail: next.Message})
	}
	if next.Complete && !l.state.Complete {
		c.Observe(ctx, observe.RunPlanned{Run: next.Run, Shards: next.Shards, Items: next.Items})
	}
	l.state, l.rev, l.performed = next, rev, len(next.Effects) == 0
	c.opts.Hooks.OnSaved(next)
	if next.Phase.Ended() {
		c.forget(next.Run)
	} else {
		c.remember(next.Run, l)
	}
	return nil
}

// lostShards returns the shards that the step from a to b sends again because
// events reported them lost. Reports that a has already acted on are left out.
func lostShards(a, b run.State, evs []run.Event) (out []observe.ShardLost) {
	reported := map[int]bool{}
	for _, e := range evs {
		if e.Kind != run.ShardLost || reported[e.Shard] {
			continue
		}
		before, sent := a.InFlight.Generation(e.Shard)
		after, _ := b.InFlight.Generation(e.Shard)
		if sent && before == e.Generation && after > before {
			reported[e.Shard] = true
			out = append(out, observe.ShardLost{Run: b.Run, Shard: e.Shard, Generation: e.Generation, Reason: e.Why})
		}
	}
	return out
}

// unchanged reports whether the step from a to b needs no save. A state with
// effects or with more done shards always needs one, which is known without encoding it.
func unchanged(a, b run.State) bool {
	if len(b.Effects) > 0 || a.Done.Set.Len() != b.Done.Set.Len() {
		return false
	}
	a.Steps, a.SavedAt, a.History = b.Steps, b.SavedAt, b.History // a point alone is not worth a write
	x, errX := json.Marshal(a)
	y, errY := json.Marshal(b)
	return errX == nil && errY == nil && string(x) == string(y)
}
