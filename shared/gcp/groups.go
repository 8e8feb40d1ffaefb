package gcp

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"rollout/shared/capacity"
	"rollout/shared/clock"
	"rollout/shared/config"
	"rollout/shared/core/scaling"
	"rollout/shared/document"
	"rollout/shared/fault"
	"rollout/shared/host"
	"rollout/shared/observe"
)

// groups are the machines of a pool on Compute Engine: a regional managed group for each
// series of machine types, in the order of the config.
//
//	ScaleUp ──▶ sizes, instances, errors ──▶ scaling.Spread ──▶ lock, the same again ──▶ withdraw, resize
//
// A group's size is only ever raised by resize, because Compute Engine would pick the
// machines that a lower size ends. Requests that were not fulfilled are given up by
// deleting their instances, which do not exist. Working machines leave by themselves:
// see Leave.
type groups struct {
	pool     string
	names    []string
	managers *managers
	docs     document.Store
	clock    clock.Clock
	log      *slog.Logger
}

var (
	_ capacity.Fleet      = (*groups)(nil)
	_ capacity.Withdrawer = (*groups)(nil)
)

// GroupNames returns the names of a pool's groups, as the deployment makes them: one for
// each series of its machine types. Examples: "rollout-small-g2", "rollout-small-a2".
func GroupNames(d config.Deployment, pool string) (names []string) {
	for _, instanceType := range d.InstanceTypesOf(pool) {
		if name := d.Cloud.FleetName(pool) + "-" + groupSeries(instanceType); !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// groupSeries returns the name of the machine types that share a group, and thus a template:
// mostly their series. A3 Ultra has other disks than the rest of A3. infra/gcp/machines.tf
// does the same.
func groupSeries(machineType string) string {
	if strings.HasPrefix(machineType, "a3-ultragpu-") {
		return "a3ultra"
	}
	series, _, _ := strings.Cut(machineType, "-")
	return series
}

// PoolOfGroup returns the pool whose machines a group has.
func PoolOfGroup(d config.Deployment, group string) (pool string, ok bool) {
	for _, p := range d.Pools {
		if p.Machines != config.MachinesCloudRun && slices.Contains(GroupNames(d, p.Name), group) {
			return p.Name, true
		}
	}
	return "", false
}

// ScaleUp asks for machines until the pool has so many; see capacity.Fleet. While
// another call works on the pool's groups it does nothing. It locks and writes only if
// there is something to do, because a pool is looked at with each batch of work that is
// sent, and a document takes one write a second.
func (g *groups) ScaleUp(ctx context.Context, _ string, machines int) error {
	var state groupsState
	if _, _, err := host.Load(ctx, g.docs, groupsKey(g.pool), &state); err != nil {
		return err
	}
	p, err := g.plan(ctx, machines, state)
	if err != nil || !p.changes(state) {
		return err
	}
	return g.locked(ctx, func(ctx context.Context, l *groupsLock) error {
		p, err := g.plan(ctx, machines, l.state)
		if err != nil {
			return err
		}
		if err := g.report(ctx, p.seen, p.memory); err != nil {
			return err
		}
		l.state.Memory = p.memory
		return g.perform(ctx, l, p.seen, p.orders)
	})
}

// groupsPlan is what a pool's groups need now.
type groupsPlan struct {
	seen   []seenGroup
	orders []scaling.Order
	memory map[string]scaling.Memory
}

// plan looks at the groups and decides what they need to have so many machines. It is
// NotFound if no group exists.
func (g *groups) plan(ctx context.Context, machines int, state groupsState) (p groupsPlan, err error) {
	if p.seen, err = g.observe(ctx, state.Memory); err != nil {
		return p, err
	}
	if len(p.seen) == 0 {
		return p, &fault.Error{Kind: fault.NotFound,
			Err:    fault.New(fault.NotFound, "none of the groups %s exists", strings.Join(g.names, ", ")),
			Remedy: "deploy with gpu=true, or start workers of the pool " + g.pool + " yourself"}
	}
	sources := make([]scaling.Source, len(p.seen))
	for i, s := range p.seen {
		sources[i] = s.source
	}
	p.orders, p.memory = scaling.Spread(machines, sources, state.Memory, g.clock.Now())
	return p, nil
}

// changes reports whether the plan asks for something, or differs from what is recorded.
func (p groupsPlan) changes(state groupsState) bool {
	size := sizeOf(p.seen)
	return len(p.orders) > 0 || (size.Desired > size.Present) != state.Outstanding || size != state.Told ||
		!maps.Equal(p.memory, state.Memory)
}

// Withdraw gives up requests for machines that do not exist; see capacity.Withdrawer. It
// asks Compute Engine only while the groups have, or shall have, machines, and otherwise reads
// a document.
func (g *groups) Withdraw(ctx context.Context, _ string) error {
	var state groupsState
	_, _, err := host.Load(ctx, g.docs, groupsKey(g.pool), &state)
	if err != nil || !state.Outstanding && state.Told == (groupsSize{}) {
		return err
	}
	if !state.Outstanding {
		seen, err := g.observe(ctx, state.Memory)
		if err != nil || sizeOf(seen) == state.Told {
			return err
		}
	}
	return g.locked(ctx, func(ctx context.Context, l *groupsLock) error {
		seen, err := g.observe(ctx, l.state.Memory)
		if err != nil {
			return err
		}
		var orders []scaling.Order
		for _, s := range seen {
			if s.source.Pending > 0 {
				orders = append(orders, scaling.Order{Source: s.source.Name, Withdraw: true})
			}
		}
		return g.perform(ctx, l, seen, orders)
	})
}

// seenGroup is a group as it was seen.
type seenGroup struct {
	source scaling.Source
	size   int
	absent []string // URLs of instances that do not exist
	listed int      // instances that are not about to leave
	why    string   // the newest problem, in Compute Engine's words
}

// sizeOf counts the machines of all groups.
func sizeOf(seen []seenGroup) (n groupsSize) {
	for _, s := range seen {
		n.Desired += s.source.Present + s.source.Pending
		n.Present += s.source.Present
	}
	return n
}

// observe reads the groups that exist.
func (g *groups) observe(ctx context.Context, memory map[string]scaling.Memory) (all []seenGroup, err error) {
	for _, name := range g.names {
		s := seenGroup{source: scaling.Source{Name: name}}
		s.size, err = g.managers.size(ctx, name)
		if fault.Is(err, fault.NotFound) { // no zone has its machines, or the deployment has no machines
			continue
		}
		if err == nil && (s.size > 0 || memory[name].Present > 0) {
			err = g.inspect(ctx, &s)
		}
		if err != nil {
			return nil, err
		}
		all = append(all, s)
	}
	return all, nil
}

// inspect reads the instances of a group, and the errors if some of them do not exist.
func (g *groups) inspect(ctx context.Context, s *seenGroup) error {
	instances, err := g.managers.instances(ctx, s.source.Name)
	if err != nil {
		return err
	}
	for _, i := range instances {
		switch {
		case i.leaving():
			continue
		case i.present():
			s.source.Present++
		case i.absent():
			s.absent = append(s.absent, i.URL)
		}
		s.listed++
	}
	s.source.Pending = max(0, s.size-s.source.Present)
	if s.source.Pending == 0 {
		return nil
	}
	failures, err := g.managers.errors(ctx, s.source.Name)
	if err != nil {
		return err
	}
	for _, f := range failures {
		if f.At.After(s.source.Problem.At) && f.Details.Action != "DELETING" {
			s.source.Problem = scaling.Problem{Kind: problemKind(f.Error.Code, f.Error.Message), At: f.At}
			s.why = problemText(f.Error.Code, f.Error.Message)
		}
	}
	return nil
}

// perform carries out the orders, withdrawals first, and notes, for people, how many machines
// the pool then shall have. It resizes only while the lock is held for certain: a late request
// could lower a size that another call has raised.
func (g *groups) perform(ctx context.Context, l *groupsLock, seen []seenGroup, orders []scaling.Order) error {
	pending := map[string]int{}
	for _, s := range seen {
		pending[s.source.Name] = s.source.Pending
	}
	for _, o := range orders {
		at := slices.IndexFunc(seen, func(s seenGroup) bool { return s.source.Name == o.Source })
		s := seen[at]
		if o.Withdraw {
			left, err := g.withdraw(ctx, l, s)
			if err != nil {
				return err
			}
			pending[o.Source] = left
			continue
		}
		if err := g.resize(ctx, l, o.Source, s.size+o.Add); err != nil {
			return err
		}
		pending[o.Source] += o.Add
		g.log.InfoContext(ctx, "asked for machines", observe.KeyPool, g.pool, "group", o.Source, "machines", o.Add)
	}
	size := sizeOf(seen)
	size.Desired = size.Present
	for _, n := range pending {
		size.Desired += n
	}
	l.state.Outstanding = size.Desired > size.Present
	return g.tell(ctx, l, size)
}

// tell notes in fleet/<pool> how many machines the pool has, if that has changed.
func (g *groups) tell(ctx context.Context, l *groupsLock, size groupsSize) error {
	if size == l.state.Told {
		return nil
	}
	if err := noteSize(ctx, g.docs, g.pool, g.clock.Now(), size.Desired, size.Present); err != nil {
		return err
	}
	l.state.Told = size
	return nil
}

// resize sets the size of a group, if the lock is held for certain. A group whose resize
// is refused is asked again after a pause, and people are told why.
func (g *groups) resize(ctx context.Context, l *groupsLock, group string, size int) error {
	now := g.clock.Now()
	if err := l.check(now); err != nil {
		return err
	}
	l.uncertain = true
	err := g.managers.resize(ctx, group, size)
	l.uncertain = fault.Retriable(err) || fault.Is(err, fault.Canceled)
	if err == nil || l.uncertain {
		return err
	}
	memory := maps.Clone(l.state.Memory)
	if memory == nil {
		memory = map[string]scaling.Memory{}
	}
	memory[group] = memory[group].Pause(scaling.Refused, now)
	l.state.Memory = memory
	return errors.Join(err, noteAbsence(ctx, g.docs, g.pool, now, scaling.Refused,
		problemText("", err.Error())))
}

// withdraw gives up what is pending in a group, and returns how much of it is left: a
// machine that is about to end is pending, too, and drains undisturbed.
func (g *groups) withdraw(ctx context.Context, l *groupsLock, s seenGroup) (left int, err error) {
	switch {
	case s.listed == 0: // the group has not begun, and nothing works
		err = g.resize(ctx, l, s.source.Name, 0)
	case len(s.absent) > 0:
		err = g.managers.remove(ctx, s.source.Name, s.absent)
		left = s.source.Pending - len(s.absent)
	default:
		return s.source.Pending, nil
	}
	if err == nil {
		g.log.InfoContext(ctx, "gave up machines that did not come", observe.KeyPool, g.pool, "group", s.source.Name,
			"machines", s.source.Pending-left, observe.KeyReason, s.why)
	}
	return max(0, left), err
}

// report notes, for people, why the pool gets no machines: the newest problem of the
// groups that pause.
func (g *groups) report(ctx context.Context, seen []seenGroup, memory map[string]scaling.Memory) error {
	var newest seenGroup
	for _, s := range seen {
		pauses := memory[s.source.Name].RetryAt.After(g.clock.Now())
		if pauses && s.why != "" && s.source.Problem.At.After(newest.source.Problem.At) {
			newest = s
		}
	}
	if newest.why == "" {
		return nil
	}
	retryAt := memory[newest.source.Name].RetryAt.UTC().Format(time.TimeOnly)
	return noteAbsence(ctx, g.docs, g.pool, newest.source.Problem.At, newest.source.Problem.Kind,
		newest.why+" (group "+newest.source.Name+"; it is asked again after "+retryAt+" UTC)")
}
