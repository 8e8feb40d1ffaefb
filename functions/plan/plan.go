// Package plan cuts a run's input into shards.
//
//	RunSubmitted ─▶ (unpack) ─▶ plan document, one PlanRange a range of 64 MiB
//	PlanRange    ─▶ cut table, id list, range result
//	              ─▶ merge: index entries in order, duplicates ─▶ PlanAdvanced
//
// Ranges are cut in parallel and in any order; the merge is the only writer of
// the plan document and takes all that wait in order, so that range k can be
// dispatched as soon as ranges 0 to k are planned. Everything it writes is create-only
// and a pure function of the pinned input, so doing it again changes nothing.
// It answers no item and never looks further into a line than its id.
package plan

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"rollout/events"
	"rollout/shared/config"
	"rollout/shared/core/identity"
	"rollout/shared/fault"
	"rollout/shared/host"
	"rollout/shared/input"
	"rollout/shared/record"
)

// Planner handles the three planning events. Safe for concurrent use.
type Planner struct {
	host.Ports
	leased            bool
	starting, merging inProgress
}

// New returns a planner over the ports.
func New(p host.Ports) *Planner { return &Planner{Ports: p.WithSource("plan")} }

// inProgress are the runs that somebody in this process is about: whoever comes
// meanwhile leaves it to him.
type inProgress struct {
	mu   sync.Mutex
	runs map[identity.RunID]bool
}

func (h *inProgress) begin(id identity.RunID) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.runs[id] {
		return false
	}
	if h.runs == nil {
		h.runs = map[identity.RunID]bool{}
	}
	h.runs[id] = true
	return true
}

func (h *inProgress) end(id identity.RunID) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.runs, id)
}

// Submitted starts a run's plan, or goes on with it.
func (p *Planner) Submitted(ctx context.Context, e events.RunSubmitted) (err error) {
	id := identity.RunID(e.Run)
	ctx, span := p.StartSpan(ctx, time.Time{}, "plan", id)
	defer func() { span.End(err) }()
	m, err := host.LoadManifest(ctx, p.Docs, id)
	if err != nil || m.Refused != "" {
		return err
	}
	var doc record.Plan
	_, found, err := host.Load(ctx, p.Docs, record.PlanKey(id), &doc)
	if err != nil {
		return err
	}
	if !found || doc.Problem != "" {
		if paused, err := p.paused(ctx, id, doc); err != nil || paused {
			return err
		}
		var started bool
		doc, started, err = p.startOnce(ctx, m)
		if err != nil || !started || doc.Problem != "" {
			return err
		}
	}
	if doc.Complete() {
		return p.Send(ctx, host.CoordinateQueue, events.PlanAdvanced(e))
	}
	return p.sendRanges(ctx, id, doc)
}

// paused reports whether the plan has met a problem and nobody has resumed the
// run since: it would only meet it again.
func (p *Planner) paused(ctx context.Context, id identity.RunID, doc record.Plan) (bool, error) {
	if doc.Problem == "" {
		return false, nil
	}
	var ctl record.Control
	_, _, err := host.Load(ctx, p.Docs, record.ControlKey(id), &ctl)
	return ctl.Desired == record.DesiredPause, err
}

// startOnce starts the plan, unless somebody is about it: unpacking an input may
// take as long as a call may, and costs everyone as much who does it.
func (p *Planner) startOnce(ctx context.Context, m record.Manifest) (doc record.Plan, started bool, err error) {
	if !slices.ContainsFunc(m.Inputs, func(in record.Input) bool { return in.Packed != "" }) {
		doc, err = p.start(ctx, m)
		return doc, true, err
	}
	giveBack, ok, err := p.acquireLease(ctx, m.Run, &p.starting)
	if err != nil || !ok {
		return doc, false, err
	}
	defer giveBack()
	doc, err = p.start(ctx, m)
	return doc, true, err
}

// start writes the plan document: which ranges there are.
func (p *Planner) start(ctx context.Context, m record.Manifest) (record.Plan, error) {
	fresh := record.Plan{Schema: record.Schema}
	for i, in := range m.Inputs {
		src, err := p.source(ctx, m, i)
		if err != nil {
			return p.recordProblem(ctx, m.Run, fault.Wrap(err, "%s", in.Label()))
		}
		fresh.Ranges = append(fresh.Ranges, src)
		fresh.Total += src.Count
	}
	return host.Update(ctx, p.Docs, record.PlanKey(m.Run), func(cur record.Plan, found bool) (record.Plan, bool, error) {
		if !found || len(cur.Ranges) == 0 {
			return fresh, true, nil
		}
		changed := cur.Problem != ""
		cur.Problem, cur.ProblemKind = "", ""
		return cur, changed, nil
	})
}

// recordProblem records why planning can't go on, for coordinate to act on. Faults
// that may pass are returned instead.
func (p *Planner) recordProblem(ctx context.Context, id identity.RunID, why error) (record.Plan, error) {
	var kind record.ProblemKind
	var slow *slowError
	switch {
	case errors.As(why, &slow):
		kind = record.InputSlow
	case fault.ClassOf(why) == fault.InputChanged:
		kind = record.InputChanged
	case fault.Is(why, fault.NotFound):
		kind = record.InputMissing
	case fault.Is(why, fault.Corrupt), fault.Is(why, fault.Invalid):
		kind = record.InputBroken
	default:
		return record.Plan{}, why
	}
	var ctl record.Control
	if _, _, err := host.Load(ctx, p.Docs, record.ControlKey(id), &ctl); err != nil {
		return record.Plan{}, err
	}
	p.Log.WarnContext(ctx, "plan can't go on", "run", id, "trouble", kind, "error", why)
	doc, err := host.Update(ctx, p.Docs, record.PlanKey(id), func(cur record.Plan, _ bool) (record.Plan, bool, error) {
		cur.Schema, cur.Problem, cur.ProblemKind, cur.Control = record.Schema, why.Error(), kind, ctl.Sequence
		return cur, true, nil
	})
	if err != nil {
		return doc, err
	}
	return doc, p.Send(ctx, host.CoordinateQueue, events.PlanAdvanced{Run: string(id)})
}

// source pins what is planned of an input: the object itself, or its unpacked
// copy.
func (p *Planner) source(ctx context.Context, m record.Manifest, i int) (record.Ranges, error) {
	in := m.Inputs[i]
	key, version, size := in.Key, in.Version, in.Size
	if in.Packed != "" {
		key = record.UnpackedKey(m.Run, i)
		info, err := p.unpack(ctx, in, key, m.Config.Input.MaxUnpacked)
		if err != nil {
			return record.Ranges{}, err
		}
		version, size = info.Version, info.Size
	} else if _, err := p.Blobs.Stat(ctx, key, version); err != nil {
		r, err := input.OpenPinned(ctx, p.Blobs, key, version, 0, 1) // says whether it is gone or changed
		if err != nil {
			return record.Ranges{}, err
		}
		r.Close()
	}
	src := record.Ranges{Key: key, Version: version, Size: size, Count: record.RangeCount(size)}
	if m.Kind == config.KindTrain {
		return p.job(ctx, m, src)
	}
	return src, nil
}

// sendBatch is how many range messages are sent at once.
const sendBatch = 100

// sendRanges asks for every range that is not merged.
func (p *Planner) sendRanges(ctx context.Context, id identity.RunID, doc record.Plan) error {
	var batch []events.Payload
	for k := doc.Merged; k < doc.Total; k++ {
		in, offset, limit, ok := doc.Locate(k)
		if !ok {
			return fault.New(fault.Corrupt, "plan of run %s has no range %d", id, k)
		}
		batch = append(batch, events.PlanRange{Run: string(id), Range: k, Input: in, Offset: offset, Limit: limit})
		if len(batch) == sendBatch || k == doc.Total-1 {
			if err := p.Send(ctx, host.PlanQueue, batch...); err != nil {
				return err
			}
			batch = batch[:0]
		}
	}
	return nil
}
