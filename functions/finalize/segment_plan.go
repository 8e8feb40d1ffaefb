package finalize

import (
	"cmp"
	"context"
	"crypto/rand"
	"path"
	"strconv"
	"strings"

	"golang.org/x/sync/errgroup"

	"rollout/events"
	"rollout/shared/blob"
	"rollout/shared/core/identity"
	"rollout/shared/core/run"
	"rollout/shared/core/shard"
	"rollout/shared/document"
	"rollout/shared/fault"
	"rollout/shared/host"
	"rollout/shared/record"
)

// SegmentOptions say how the files of large runs are written in segments. A
// field that is zero has its default.
//
//	Finalize ─▶ which segments are missing? ─▶ FinalizeSegment, one for each ─▶ rows, then the segment's record
//	    ▲                    │ none                                                  │ none is missing
//	    └────────────────────┼───────────────────────────────────────────────────────┘
//	                         ▼
//	            join of the rows ─▶ summary
//
// The call that asks for segments decides where they begin and end; a call that
// runs out of time ends its segment early. The first record of a segment that is
// written is the valid one.
type SegmentOptions struct {
	// StreamBelow is the size of results, in bytes, below which a run is written
	// in one stream. Default: 256 MiB.
	StreamBelow int64
	MinBytes    int64 // of results in a segment. Default: 64 MiB
	// MaxShards bounds the shards of a segment, unless MaxRequests makes it
	// larger. Default: 2,048.
	MaxShards   int
	MaxRequests int // segments asked for at once, at most. Default: 256
	// Nonce returns a name for a call's objects. Default: random.
	Nonce func() string
}

func (s SegmentOptions) withDefaults() SegmentOptions {
	s.StreamBelow, s.MinBytes = cmp.Or(s.StreamBelow, 256<<20), cmp.Or(s.MinBytes, 64<<20)
	s.MaxShards, s.MaxRequests = cmp.Or(s.MaxShards, 2048), cmp.Or(s.MaxRequests, 256)
	if s.Nonce == nil {
		s.Nonce = rand.Text
	}
	return s
}

// dedupeShardFactor divides the shards of a segment in a run that asks identical
// requests once: a copy is longer in the file than in its own result, and is
// made from another result.
const dedupeShardFactor = 8

// shardLimit bounds the shards of a segment of the run.
func (s SegmentOptions) shardLimit(m record.Manifest) int {
	if m.Config.Dedupe.Enabled {
		return max(1, s.MaxShards/dedupeShardFactor)
	}
	return s.MaxShards
}

// bySegments writes the files of a small run in one stream. For a large run it
// asks for the missing segments, or joins the segments if none is missing.
func (f *Finalizer) bySegments(ctx context.Context, m record.Manifest, s run.State) (run.State, totals, bool, error) {
	docs, small, err := f.small(ctx, m, s)
	if err != nil {
		return s, totals{}, false, err
	}
	if small {
		return f.stream(ctx, m, s, docs, nil, nil)
	}
	have, gaps, err := f.segmentsAndGaps(ctx, s)
	if err == nil && len(gaps) > 0 {
		err = f.ask(ctx, m, s, gaps)
	}
	if err != nil || len(gaps) > 0 {
		return s, totals{}, false, err
	}
	var t totals
	var out, errs, entries []record.Rows
	for _, seg := range have {
		t.join(seg)
		out, errs = append(out, seg.Completions), append(errs, seg.Errors)
		entries = append(entries, seg.Entries)
	}
	for key, rows := range map[string][]record.Rows{record.OutputKey(m.Run, record.CompletionsFile): out,
		record.OutputKey(m.Run, record.ErrorsFile): errs, record.FileEntriesKey(m.Run): entries} {
		if err := f.join(ctx, key, rows); err != nil {
			return s, t, false, err
		}
	}
	return s, t, true, nil
}

// small reports whether a run's files are written in one stream. If so it returns
// the documents of all its shards.
func (f *Finalizer) small(ctx context.Context, m record.Manifest,
	s run.State) (docs []shard.Doc, small bool, err error) {
	if s.Shards > f.segments.shardLimit(m) {
		return nil, false, nil
	}
	left := f.segments.StreamBelow
	err = f.each(ctx, s, shardRange{0, s.Shards}, func(d shard.Doc) {
		docs, left = append(docs, d), left-weight(d)
	})
	return docs, left > 0, err
}

// shardRange is the shards from from to to, to excluded.
type shardRange struct{ from, to int }

// unansweredBytes is the assumed size of the error rows of a shard without a
// result: 256 items of 256 bytes.
const unansweredBytes = 64 << 10

// docsWeighed is how many documents are read at once to weigh their shards.
const docsWeighed = document.MaxKeys

// each calls yield with the document of each shard of the range, in order.
func (f *Finalizer) each(ctx context.Context, s run.State, of shardRange, yield func(shard.Doc)) error {
	for lo := of.from; lo < of.to; lo += docsWeighed {
		docs, err := f.docs(ctx, s.Run, lo, min(lo+docsWeighed, of.to))
		if err != nil {
			return err
		}
		for _, d := range docs {
			yield(d)
		}
	}
	return nil
}

// weight is about how many bytes of the files a shard makes.
func weight(d shard.Doc) int64 {
	switch {
	case d.Result != nil:
		return d.Result.Length
	case d.Checkpoint != nil:
		return d.Checkpoint.Length + unansweredBytes
	}
	return unansweredBytes
}

// recordsAtOnce is how many segment records are read at once.
const recordsAtOnce = 16

// segmentsAndGaps reads the existing segments. It returns those that do not
// overlap, in order, and the gaps between them.
func (f *Finalizer) segmentsAndGaps(ctx context.Context, s run.State) (have []record.OutputSegment,
	gaps []shardRange, err error) {
	begins, err := f.segmentStarts(ctx, s.Run)
	if err != nil {
		return nil, nil, err
	}
	all := make([]record.OutputSegment, len(begins))
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(recordsAtOnce)
	for i, from := range begins {
		group.Go(func() (err error) {
			all[i], err = f.readSegment(groupCtx, s, from)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return nil, nil, err
	}
	at := 0
	for _, seg := range all {
		switch {
		case seg.From < at: // an earlier segment has its first shard
			continue
		case seg.From > at:
			gaps = append(gaps, shardRange{at, seg.From})
		}
		have, at = append(have, seg), seg.To
	}
	if at < s.Shards {
		gaps = append(gaps, shardRange{at, s.Shards})
	}
	return have, gaps, nil
}

// segmentStarts lists the first shards of the existing segments, in order.
func (f *Finalizer) segmentStarts(ctx context.Context, id identity.RunID) ([]int, error) {
	prefix := path.Dir(record.OutputSegmentKey(id, 0)) + "/"
	var out []int
	for after := ""; ; {
		infos, err := f.Blobs.List(ctx, prefix, after, blob.MaxList)
		if err != nil {
			return nil, err
		}
		for _, info := range infos {
			after = info.Key
			from, err := strconv.Atoi(strings.TrimSuffix(path.Base(info.Key), ".json"))
			if err != nil || record.OutputSegmentKey(id, from) != info.Key {
				return nil, fault.New(fault.Corrupt, "object %s is not the record of a segment", info.Key)
			}
			out = append(out, from)
		}
		if len(infos) < blob.MaxList {
			return out, nil
		}
	}
}

// ask sends events for the segments that fill the gaps.
func (f *Finalizer) ask(ctx context.Context, m record.Manifest, s run.State, gaps []shardRange) error {
	var spans []shardRange
	for _, g := range gaps {
		cut, err := f.cut(ctx, m, s, g)
		if err != nil {
			return err
		}
		spans = append(spans, cut...)
	}
	spans = coalesce(spans, f.segments.MaxRequests)
	batch := make([]events.Payload, len(spans))
	for i, sp := range spans {
		batch[i] = events.FinalizeSegment{Run: string(m.Run), From: sp.from, To: sp.to}
	}
	return f.Send(ctx, host.TaskQueue, batch...)
}

// cut divides a gap into segments.
func (f *Finalizer) cut(ctx context.Context, m record.Manifest, s run.State,
	gap shardRange) (out []shardRange, err error) {
	most := f.segments.shardLimit(m)
	from, bytes := gap.from, int64(0)
	err = f.each(ctx, s, gap, func(d shard.Doc) {
		bytes += weight(d)
		if to := d.Shard + 1; bytes >= f.segments.MinBytes || to-from >= most || to == gap.to {
			out = append(out, shardRange{from, to})
			from, bytes = to, 0
		}
	})
	return out, err
}

// coalesce merges neighbouring ranges until at most limit ranges are left. If no
// ranges are neighbours, it drops those beyond the limit: they are asked for once
// the others are written.
func coalesce(spans []shardRange, limit int) []shardRange {
	for len(spans) > limit {
		var out []shardRange
		for i := 0; i < len(spans); i++ {
			sp := spans[i]
			if i+1 < len(spans) && spans[i+1].from == sp.to {
				i++
				sp.to = spans[i].to
			}
			out = append(out, sp)
		}
		if len(out) == len(spans) {
			return spans[:limit]
		}
		spans = out
	}
	return spans
}

// join joins the rows of all segments into one file, unless the file exists.
func (f *Finalizer) join(ctx context.Context, key string, rows []record.Rows) error {
	parts := make([]blob.Range, 0, len(rows))
	for _, r := range rows {
		if r.Length > 0 {
			parts = append(parts, blob.Range{Key: r.Key, Length: r.Length})
		}
	}
	// Check first: a join copies all parts before it fails because the file exists.
	_, err := f.Blobs.Stat(ctx, key, "")
	switch {
	case !fault.Is(err, fault.NotFound):
		return err
	case len(parts) == 0:
		_, err = f.Blobs.Put(ctx, key, strings.NewReader(""), blob.PutOptions{CreateOnly: true})
	case len(parts) > blob.MaxParts:
		return fault.New(fault.Exhausted, "%s has %d segments, more than the %d that can be joined",
			key, len(parts), blob.MaxParts)
	default:
		_, err = f.Blobs.Join(ctx, key, parts)
	}
	if fault.Is(err, fault.Conflict) { // it exists, with the same bytes
		return nil
	}
	return err
}
