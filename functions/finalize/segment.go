package finalize

import (
	"bytes"
	"context"
	"log/slog"
	"time"

	"rollout/events"
	"rollout/shared/blob"
	"rollout/shared/core/identity"
	"rollout/shared/core/run"
	"rollout/shared/fault"
	"rollout/shared/host"
	"rollout/shared/input"
	"rollout/shared/record"
)

// WriteSegment writes the segment that it is asked for, unless it is there. When its
// time is nearly up it ends the segment early: the rest is asked for again. If
// it finds that no segment is missing any more, it has the run finalized.
func (f *Finalizer) WriteSegment(ctx context.Context, e events.FinalizeSegment) (err error) {
	s, finalizing, err := f.finalizing(ctx, identity.RunID(e.Run))
	if err != nil || !finalizing || f.segments == nil {
		return err
	}
	if e.To > s.Shards {
		return fault.New(fault.Invalid, "run %s has %d shards, and no segment up to shard %d", s.Run, s.Shards, e.To)
	}
	ctx, span := f.StartSpan(ctx, time.Time{}, "finalize segment", s.Run, slog.Int("from", e.From), slog.Int("to", e.To))
	defer func() { span.End(err) }()
	m, err := host.LoadManifest(ctx, f.Docs, s.Run)
	if err != nil {
		return err
	}
	late := f.timer(ctx)
	for from := e.From; from < e.To; {
		if from > e.From && late() {
			return nil
		}
		seg, err := f.segment(ctx, m, s, from, e.To, late)
		if err != nil {
			return fault.Wrap(err, "segment of run %s from shard %d", s.Run, from)
		}
		from = seg.To
	}
	_, gaps, err := f.segmentsAndGaps(ctx, s)
	if err != nil || len(gaps) > 0 {
		return err
	}
	return f.Send(ctx, host.TaskQueue, events.Finalize{Run: e.Run})
}

// timer returns what tells that a quarter of the time that a call has is left,
// or less: enough to end what was begun.
func (f *Finalizer) timer(ctx context.Context) (late func() bool) {
	deadline, ok := ctx.Deadline()
	if !ok {
		return func() bool { return false }
	}
	end := deadline.Add(-deadline.Sub(f.Clock.Now()) / 4)
	return func() bool { return !f.Clock.Now().Before(end) }
}

// segment returns the segment that begins with that shard; it writes one, up to
// shard to if there is time, if there is none.
func (f *Finalizer) segment(ctx context.Context, m record.Manifest, s run.State, from, to int, late func() bool) (record.OutputSegment, error) {
	seg, err := f.readSegment(ctx, s, from)
	if !fault.Is(err, fault.NotFound) {
		return seg, err
	}
	// Another execution may end the segment elsewhere, so that its rows are
	// others: each has objects of its own.
	nonce := f.segments.Nonce()
	completions, errs := record.OutputSegmentRowsKey(m.Run, from, nonce, record.CompletionsFile), record.OutputSegmentRowsKey(m.Run, from, nonce, record.ErrorsFile)
	w := f.writer(ctx, m, s, completions, errs)
	w.late = late
	end, err := w.writeShards(ctx, from, to)
	if err := w.finish(err); err != nil {
		return seg, err
	}
	seg = w.totals.segment(from, end)
	seg.Completions, seg.Errors = record.Rows{Key: completions, Length: w.out.pipe.length}, record.Rows{Key: errs, Length: w.errs.pipe.length}
	_, err = f.Blobs.Put(ctx, record.OutputSegmentKey(m.Run, from), bytes.NewReader(record.Encode(seg)), blob.PutOptions{CreateOnly: true})
	if fault.Is(err, fault.Conflict) { // somebody else was faster
		return f.readSegment(ctx, s, from)
	}
	return seg, err
}

// readSegment reads the segment that begins with that shard; NotFound if there
// is none.
func (f *Finalizer) readSegment(ctx context.Context, s run.State, from int) (seg record.OutputSegment, err error) {
	key := record.OutputSegmentKey(s.Run, from)
	b, err := input.ReadObject(ctx, f.Blobs, key, maxSegment)
	if err != nil {
		return seg, err
	}
	if err := record.Decode(b, &seg, key); err != nil {
		return seg, err
	}
	if seg.From != from || seg.To <= from || seg.To > s.Shards {
		return seg, fault.New(fault.Corrupt, "%s is of the shards from %d to %d; the run has %d", key, seg.From, seg.To, s.Shards)
	}
	return seg, nil
}

// maxSegment bounds the object that describes a segment: it names workers.
const maxSegment = 1 << 20
