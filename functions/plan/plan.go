package plan

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"time"

	"rollout/events"
	"rollout/shared/core/identity"
	"rollout/shared/fault"
	"rollout/shared/host"
	"rollout/shared/input"
	"rollout/shared/kind"
	"rollout/shared/observe"
	"rollout/shared/record"
)

// Planner handles the planning events. It is safe for concurrent use.
type Planner struct {
	host.Ports
	opts              Options
	inputs            *input.Inputs
	starting, merging inProgress // unused with Options.Leases
}

// Options are what a planner takes besides its ports.
type Options struct {
	// Leases is for several processes that plan the same runs, as in clouds. A
	// lease for each run then lets one call at a time merge ranges or unpack
	// inputs; the others return at once, and a call without time left leaves the
	// rest to later calls. Otherwise calls exclude each other within the process.
	Leases bool
	Kinds  kind.Table
	// Bucket is the name by which uploads of a watched folder are known; "" for buckets
	// that keep old versions.
	Bucket string
}

// New returns a planner over the ports.
func New(p host.Ports, o Options) *Planner {
	return &Planner{Ports: p.WithSource("plan"), opts: o, inputs: input.NewInputs(p.Blobs)}
}

// inProgress are the runs that a call in this process is working on. Concurrent
// calls skip them.
type inProgress struct {
	mu   sync.Mutex
	runs map[identity.RunID]bool
}

// begin reports whether the caller may work on the run, and then must call end.
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

// Submitted starts a run's plan or resumes it: it asks for the ranges that are
// not merged yet, lets a plan grow that may, decides a look that is due, or tells
// coordinate that nothing is left to do.
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
	if doc.AllMerged() {
		if doc, err = p.look(ctx, m, doc); err == nil && doc.Growing {
			doc, err = p.grow(ctx, m, doc)
		}
		if err != nil {
			_, err = p.recordProblem(ctx, id, err)
			return err
		}
	}
	if doc.AllMerged() {
		return p.Send(ctx, host.CoordinateQueue, events.PlanAdvanced(e))
	}
	return p.sendRanges(ctx, id, doc)
}

// paused reports whether the plan has a problem and the run was not resumed
// since: planning would meet the same problem again.
func (p *Planner) paused(ctx context.Context, id identity.RunID, doc record.Plan) (bool, error) {
	if doc.Problem == "" {
		return false, nil
	}
	var ctl record.Control
	_, _, err := host.Load(ctx, p.Docs, record.ControlKey(id), &ctl)
	return ctl.Desired == record.DesiredPause, err
}

// startOnce starts the plan. If it must unpack an input or pin many, which may take
// as long as a call may, it leaves that to a call that is already doing it: started
// is then false.
func (p *Planner) startOnce(ctx context.Context, m record.Manifest) (doc record.Plan, started bool, err error) {
	if m.Parent != nil {
		doc, err = p.startChild(ctx, m)
		return doc, true, err
	}
	if !m.AnyPacked() && m.List == nil {
		doc, err = p.start(ctx, m)
		return doc, true, err
	}
	release, ok, err := p.acquireLease(ctx, m.Run, &p.starting)
	if err != nil || !ok {
		return doc, false, err
	}
	doc, err = p.start(ctx, m)
	release() // before the next call is asked for
	if errors.Is(err, errLate) {
		return doc, false, p.Send(ctx, host.TaskQueue, events.RunSubmitted{Run: string(m.Run)})
	}
	return doc, true, err
}

// start writes the plan document, which lists the ranges, and clears an earlier
// problem.
func (p *Planner) start(ctx context.Context, m record.Manifest) (record.Plan, error) {
	k, err := p.opts.Kinds.Of(m.Kind)
	if err != nil {
		return record.Plan{}, err
	}
	fresh := record.Plan{Schema: record.Schema, Growing: k.Grows(m.Config)}
	if m.List != nil {
		err = p.listSources(ctx, m, k, &fresh)
	} else {
		err = p.sources(ctx, m, k, &fresh)
	}
	if err != nil {
		return p.recordProblem(ctx, m.Run, err)
	}
	change := func(cur record.Plan, found bool) (record.Plan, bool, error) {
		if !found || cur.Sources() == 0 {
			return fresh, true, nil
		}
		changed := cur.Problem != ""
		cur.Problem, cur.ProblemKind = "", ""
		return cur, changed, nil
	}
	return host.Update(ctx, p.Docs, record.PlanKey(m.Run), change)
}

// sources adds the sources of a run of few inputs to its plan.
func (p *Planner) sources(ctx context.Context, m record.Manifest, k kind.Kind, doc *record.Plan) error {
	for i, in := range m.Inputs {
		src, err := p.source(ctx, m, k, i, in)
		if err != nil {
			return fault.Wrap(err, "%s", in.Label())
		}
		doc.Ranges = append(doc.Ranges, src)
		doc.Total += src.Count
	}
	return nil
}

// recordProblem records why planning can't go on, for coordinate to act on. It
// returns errors that may pass, and records nothing.
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
	p.Log.WarnContext(ctx, "plan can't go on", observe.KeyRun, id, "trouble", kind, observe.KeyError, why)
	change := func(cur record.Plan, _ bool) (record.Plan, bool, error) {
		cur.Schema, cur.Problem, cur.ProblemKind, cur.Control = record.Schema, why.Error(), kind, ctl.Sequence
		return cur, true, nil
	}
	doc, err := host.Update(ctx, p.Docs, record.PlanKey(id), change)
	if err != nil {
		return doc, err
	}
	return doc, p.Send(ctx, host.CoordinateQueue, events.PlanAdvanced{Run: string(id)})
}

// source pins the object that is planned for input i: the input itself, its
// unpacked copy, or the job that the run's kind makes of it. Of an input whose lines
// are not items, it plans no range.
func (p *Planner) source(ctx context.Context, m record.Manifest, k kind.Kind, i int,
	in record.Input) (record.Ranges, error) {
	key, version, size := in.Key, in.Version, in.Size
	if in.Packed != "" {
		key = record.UnpackedKey(m.Run, i)
		info, err := p.unpack(ctx, m.Run, in, key, m.Config.Input.MaxUnpacked)
		if err != nil {
			return record.Ranges{}, err
		}
		version, size = info.Version, info.Size
	} else {
		var err error
		if version, err = p.pin(ctx, m.Run, key, version); err != nil {
			return record.Ranges{}, err
		}
	}
	src := record.Ranges{Key: key, Version: version, Size: size, Count: record.RangeCount(size)}
	switch {
	case k.Job != nil:
		return p.job(ctx, m, k, src)
	case k.OwnLines:
		digest, err := input.DigestOf(ctx, p.Blobs, key, version)
		src.Count, src.Digest = 0, digest.String()
		return src, err
	}
	return src, nil
}

// sendBatch is how many range messages are sent at once.
const sendBatch = 100

// sendRanges asks for every range that is not merged.
func (p *Planner) sendRanges(ctx context.Context, id identity.RunID, doc record.Plan) error {
	var batch []events.Payload
	for k := doc.Merged; k < doc.Total; k++ {
		at, err := p.inputs.Locate(ctx, id, doc, k)
		if err != nil {
			return err
		}
		batch = append(batch, events.PlanRange{Run: string(id), Range: k, Input: at.Input, Offset: at.Offset,
			Limit: at.Limit})
		if len(batch) == sendBatch || k == doc.Total-1 {
			if err := p.Send(ctx, host.PlanQueue, batch...); err != nil {
				return err
			}
			batch = batch[:0]
		}
	}
	return nil
}

// job writes the object that is planned instead of the input: a single line, the
// run's one item.
func (p *Planner) job(ctx context.Context, m record.Manifest, k kind.Kind, in record.Ranges) (record.Ranges, error) {
	digest, err := input.DigestOf(ctx, p.Blobs, in.Key, in.Version)
	if err != nil {
		return record.Ranges{}, err
	}
	job, err := k.Job(m, in, digest)
	if err != nil {
		return record.Ranges{}, err
	}
	line, err := json.Marshal(job)
	if err != nil {
		return record.Ranges{}, fault.WithKind(fault.Internal, err, "encode the job of run %s", m.Run)
	}
	key := record.JobKey(m.Run)
	if err := p.put(ctx, key, strings.NewReader(string(line)+"\n")); err != nil {
		return record.Ranges{}, err
	}
	info, err := p.Blobs.Stat(ctx, key, "")
	return record.Ranges{Key: key, Version: info.Version, Size: info.Size, Count: record.RangeCount(info.Size)}, err
}
