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

// WriteSegment writes the segment of the event's shards, unless it exists. When
// the call's time is nearly over, it ends the segment early; Finalize asks for
// the rest again. If no segment is missing any more, it asks for Finalize.
func (f *Finalizer) WriteSegment(ctx context.Context, e events.FinalizeSegment) (err error) {
	s, finalizing, err := f.finalizing(ctx, identity.RunID(e.Run))
	if err != nil || !finalizing || f.segments == nil {
		return err
	}
	if e.To > s.Shards {
		return fault.New(fault.Invalid, "run %s has %d shards, and no segment up to shard %d", s.Run, s.Shards, e.To)
	}
	ctx, span := f.StartSpan(ctx, time.Time{}, "finalize segment", s.Run,
		slog.Int("from", e.From), slog.Int("to", e.To))
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
		seg, err := f.segment(ctx, m, s, shardRange{from, e.To}, late)
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

// timer returns a function that reports whether at most a quarter of the call's
// time is left: enough to end what was begun.
func (f *Finalizer) timer(ctx context.Context) (late func() bool) {
	deadline, ok := ctx.Deadline()
	if !ok {
		return func() bool { return false }
	}
	end := deadline.Add(-deadline.Sub(f.Clock.Now()) / 4)
	return func() bool { return !f.Clock.Now().Before(end) }
}

// segment returns the segment that begins with the first shard of r. If none
// exists, it writes one, up to the end of r if there is time.
func (f *Finalizer) segment(ctx context.Context, m record.Manifest, s run.State, r shardRange,
	late func() bool) (record.OutputSegment, error) {
	seg, err := f.readSegment(ctx, s, r.from)
	if !fault.Is(err, fault.NotFound) {
		return seg, err
	}
	// Another call may end the segment at another shard, with other rows. Each
	// call therefore writes objects of its own.
	nonce := f.segments.Nonce()
	completions := record.OutputSegmentRowsKey(m.Run, r.from, nonce, record.CompletionsFile)
	errs := record.OutputSegmentRowsKey(m.Run, r.from, nonce, record.ErrorsFile)
	entries := record.OutputSegmentEntriesKey(m.Run, r.from, nonce)
	w, err := f.writer(ctx, m, s, fileKeys{completions, errs, entries})
	if err != nil {
		return seg, err
	}
	w.late, w.first = late, r.from
	end, err := w.writeShards(ctx, r.from, r.to)
	if err := w.finish(err); err != nil {
		return seg, err
	}
	seg = w.totals.segment(r.from, end)
	seg.Completions = record.Rows{Key: completions, Length: w.out.pipe.length}
	seg.Errors = record.Rows{Key: errs, Length: w.errs.pipe.length}
	seg.Entries = record.Rows{Key: entries, Length: w.entries.pipe.length}
	key, body := record.OutputSegmentKey(m.Run, r.from), bytes.NewReader(record.Encode(seg))
	_, err = f.Blobs.Put(ctx, key, body, blob.PutOptions{CreateOnly: true})
	if fault.Is(err, fault.Conflict) { // another call wrote it first
		return f.readSegment(ctx, s, r.from)
	}
	return seg, err
}

// readSegment reads the segment that begins with shard from; NotFound if none
// exists.
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
		return seg, fault.New(fault.Corrupt, "%s is of the shards from %d to %d; the run has %d",
			key, seg.From, seg.To, s.Shards)
	}
	return seg, nil
}

// maxSegment bounds the object that describes a segment, which names its workers.
const maxSegment = 1 << 20
