// Package plan cuts a run's input into shards.
//
//	RunSubmitted ─▶ (unpack) ─▶ plan document, one PlanRange a range of 64 MiB
//	PlanRange    ─▶ cut table, id list, range result
//	              ─▶ merge: index entries in order, duplicates ─▶ PlanAdvanced
//
// Ranges are cut in parallel and in any order; the merge is the only writer of
// the plan document and takes them in order, so that range k can be dispatched
// as soon as ranges 0 to k are planned. Everything it writes is create-only
// and a pure function of the pinned input, so doing it again changes nothing.
// It answers no item and never looks further into a line than its id.
package plan

import (
	"context"
	"io"
	"time"

	"rollout/events"
	"rollout/shared/blob"
	"rollout/shared/config"
	"rollout/shared/engine/identity"
	"rollout/shared/fault"
	"rollout/shared/host"
	"rollout/shared/input"
	"rollout/shared/record"
)

// Planner handles the three planning events. Safe for concurrent use.
type Planner struct{ host.Ports }

// New returns a planner over the ports.
func New(p host.Ports) *Planner { return &Planner{p.From("plan")} }

// Submitted starts a run's plan, or goes on with it.
func (p *Planner) Submitted(ctx context.Context, e events.RunSubmitted) (err error) {
	id := identity.RunID(e.Run)
	ctx, span := p.Begin(ctx, time.Time{}, "plan", id)
	defer func() { span.End(err) }()
	m, err := p.manifest(ctx, id)
	if err != nil || m.Refused != "" {
		return err
	}
	var doc record.Plan
	_, found, err := host.Load(ctx, p.Docs, record.PlanKey(id), &doc)
	if err != nil {
		return err
	}
	if !found || doc.Problem != "" {
		doc, err = p.start(ctx, m)
		if err != nil || doc.Problem != "" {
			return err
		}
	}
	if doc.Complete() {
		return p.Send(ctx, host.CoordinateQueue, events.PlanAdvanced(e))
	}
	return p.sendRanges(ctx, id, doc)
}

// start writes the plan document: which ranges there are.
func (p *Planner) start(ctx context.Context, m record.Manifest) (record.Plan, error) {
	fresh := record.Plan{Schema: record.Schema}
	for i, in := range m.Inputs {
		src, err := p.source(ctx, m, i)
		if err != nil {
			return p.trouble(ctx, m.Run, fault.Wrap(err, "%s", in.Label()))
		}
		fresh.Ranges = append(fresh.Ranges, src)
		fresh.Total += src.Count
	}
	return host.Update(ctx, p.Docs, record.PlanKey(m.Run), func(cur record.Plan, found bool) (record.Plan, bool, error) {
		if !found || len(cur.Ranges) == 0 {
			return fresh, true, nil
		}
		changed := cur.Problem != ""
		cur.Problem, cur.Trouble = "", ""
		return cur, changed, nil
	})
}

// trouble records why planning can't go on, for coordinate to act on. Faults
// that may pass are returned instead.
func (p *Planner) trouble(ctx context.Context, id identity.RunID, why error) (record.Plan, error) {
	var kind record.Trouble
	switch {
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
		cur.Schema, cur.Problem, cur.Trouble, cur.Control = record.Schema, why.Error(), kind, ctl.Sequence
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
		r, err := input.Open(ctx, p.Blobs, key, version, 0, 1) // says whether it is gone or changed
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

// defaultMaxUnpacked bounds what an archive may unpack to when the config does
// not say.
const defaultMaxUnpacked = 1 << 40

// unpack writes the unpacked copy of an input, unless it is there.
func (p *Planner) unpack(ctx context.Context, in record.Input, key string, limit int64) (blob.Info, error) {
	if info, err := p.Blobs.Stat(ctx, key, ""); err == nil {
		return info, nil
	}
	if limit <= 0 {
		limit = defaultMaxUnpacked
	}
	r, err := input.Open(ctx, p.Blobs, in.Key, in.Version, 0, 0)
	if err != nil {
		return blob.Info{}, err
	}
	defer r.Close()
	u, err := input.Unpack(r, in.Packed)
	if err != nil {
		return blob.Info{}, err
	}
	defer u.Close()
	info, err := p.Blobs.Put(ctx, key, &limited{r: u, left: limit, limit: limit}, blob.PutOptions{CreateOnly: true})
	if fault.Is(err, fault.Conflict) {
		return p.Blobs.Stat(ctx, key, "")
	}
	return info, err
}

// limited fails, instead of ending, behind its limit.
type limited struct {
	r           io.Reader
	left, limit int64
}

func (l *limited) Read(b []byte) (int, error) {
	n, err := l.r.Read(b)
	l.left -= int64(n)
	if l.left < 0 {
		return n, &fault.Error{Kind: fault.Invalid, Err: fault.New(fault.Invalid, "the archive unpacks to more than %d bytes", l.limit),
			Remedy: "raise input.max_unpacked, or split it"}
	}
	return n, err
}

func (p *Planner) manifest(ctx context.Context, id identity.RunID) (record.Manifest, error) {
	var m record.Manifest
	_, found, err := host.Load(ctx, p.Docs, record.ManifestKey(id), &m)
	if err == nil && !found {
		err = fault.New(fault.NotFound, "run %s has no manifest", id)
	}
	return m, err
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
