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

// SegmentOptions say how the files of a run are written by many calls at once.
// What is zero has the default.
type SegmentOptions struct {
	StreamBelow int64 // a run with fewer bytes of results is written in one stream: 256 MiB
	MinBytes    int64 // of results in a segment, at least: 64 MiB
	MaxShards   int   // in a segment, at most, unless it would be too many segments: 2,048
	MaxRequests int   // segments asked for at once, at most: 256
	// Nonce names an execution; random by default.
	Nonce func() string
}

// InSegments returns a finalizer that writes the files of large runs in
// segments: no call of it takes long, however large the run is.
//
//	Finalize ─▶ which segments are missing? ─▶ FinalizeSegment, one for each ─▶ rows, then the segment's record
//	    ▲                    │ none                                                  │ none is missing
//	    └────────────────────┼───────────────────────────────────────────────────────┘
//	                         ▼
//	            join of the rows ─▶ summary
//
// Where segments begin and end is for whoever asks, and for whoever has no time
// left, to decide: the first record of each decides for all.
func (f *Finalizer) InSegments(s SegmentOptions) *Finalizer {
	s.StreamBelow, s.MinBytes = cmp.Or(s.StreamBelow, 256<<20), cmp.Or(s.MinBytes, 64<<20)
	s.MaxShards, s.MaxRequests = cmp.Or(s.MaxShards, 2048), cmp.Or(s.MaxRequests, 256)
	if s.Nonce == nil {
		s.Nonce = rand.Text
	}
	out := *f
	out.segments = &s
	return &out
}

// dedupeShardFactor is how many times fewer shards make a segment in a run that asks
// identical requests once: a copy is longer than what its result has of it, and
// is made from what another result has.
const dedupeShardFactor = 8

// shardLimit is how many shards a segment of the run has at most.
func (s SegmentOptions) shardLimit(m record.Manifest) int {
	if m.Config.Dedupe.Enabled {
		return max(1, s.MaxShards/dedupeShardFactor)
	}
	return s.MaxShards
}

// bySegments writes a small run's files in one stream. It joins those of
// another run of their segments, or asks for those that are missing.
func (f *Finalizer) bySegments(ctx context.Context, m record.Manifest, s run.State) (run.State, totals, bool, error) {
	docs, small, err := f.small(ctx, m, s)
	if err != nil {
		return s, totals{}, false, err
	}
	if small {
		return f.stream(ctx, m, s, docs, nil)
	}
	have, gaps, err := f.segmentsAndGaps(ctx, s)
	if err == nil && len(gaps) > 0 {
		err = f.ask(ctx, m, s, gaps)
	}
	if err != nil || len(gaps) > 0 {
		return s, totals{}, false, err
	}
	var t totals
	var out, errs []record.Rows
	for _, seg := range have {
		t.join(seg)
		out, errs = append(out, seg.Completions), append(errs, seg.Errors)
	}
	for name, rows := range map[string][]record.Rows{record.CompletionsFile: out, record.ErrorsFile: errs} {
		if err := f.join(ctx, record.OutputKey(m.Run, name), rows); err != nil {
			return s, t, false, err
		}
	}
	return s, t, true, nil
}

// small reports whether a run's files are written in one stream, and returns
// its documents then.
func (f *Finalizer) small(ctx context.Context, m record.Manifest, s run.State) (docs []shard.Doc, small bool, err error) {
	if s.Shards > f.segments.shardLimit(m) {
		return nil, false, nil
	}
	left := f.segments.StreamBelow
	err = f.each(ctx, s, shardRange{0, s.Shards}, func(d shard.Doc) {
		docs, left = append(docs, d), left-weight(d)
	})
	return docs, left > 0, err
}

// shardRange is the shards from from to to, exclusive.
type shardRange struct{ from, to int }

// unansweredBytes stands for the error rows of a shard without a result: 256
// items' of 256 bytes.
const unansweredBytes = 64 << 10

// docsWeighed is how many documents are read at once for their weight.
const docsWeighed = document.MaxKeys

// each gives the document of each shard.
func (f *Finalizer) each(ctx context.Context, s run.State, of shardRange, give func(shard.Doc)) error {
	for lo := of.from; lo < of.to; lo += docsWeighed {
		docs, err := f.docs(ctx, s.Run, lo, min(lo+docsWeighed, of.to))
		if err != nil {
			return err
		}
		for _, d := range docs {
			give(d)
		}
	}
	return nil
}

// weight is how many bytes a shard puts into the files, about.
func weight(d shard.Doc) int64 {
	switch {
	case d.Result != nil:
		return d.Result.Length
	case d.Checkpoint != nil:
		return d.Checkpoint.Length + unansweredBytes
	}
	return unansweredBytes
}

// recordsAtOnce is how many records of segments are read at once.
const recordsAtOnce = 16

// segmentsAndGaps reads the segments that are there, and returns those that follow each
// other from shard 0 on, and the gaps that there are between them.
func (f *Finalizer) segmentsAndGaps(ctx context.Context, s run.State) (have []record.OutputSegment, gaps []shardRange, err error) {
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
		case seg.From < at: // its shards are in another one
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

// segmentStarts lists the first shards of the segments that are there, in order.
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
				return nil, fault.New(fault.Corrupt, "%s is no record of a segment", info.Key)
			}
			out = append(out, from)
		}
		if len(infos) < blob.MaxList {
			return out, nil
		}
	}
}

// ask asks for the segments that fill the gaps.
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

// cut cuts a gap into segments.
func (f *Finalizer) cut(ctx context.Context, m record.Manifest, s run.State, gap shardRange) (out []shardRange, err error) {
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

// coalesce makes one of neighbours until there are no more than so many, or none
// are neighbours.
func coalesce(spans []shardRange, most int) []shardRange {
	for len(spans) > most {
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
			return spans[:most] // the others are asked for when these are there
		}
		spans = out
	}
	return spans
}

// join makes a file of the rows of its segments.
func (f *Finalizer) join(ctx context.Context, key string, rows []record.Rows) error {
	parts := make([]blob.Range, 0, len(rows))
	for _, r := range rows {
		if r.Length > 0 {
			parts = append(parts, blob.Range{Key: r.Key, Length: r.Length})
		}
	}
	_, err := f.Blobs.Stat(ctx, key, "") // a join copies first and is refused last
	switch {
	case !fault.Is(err, fault.NotFound):
		return err
	case len(parts) == 0:
		_, err = f.Blobs.Put(ctx, key, strings.NewReader(""), blob.PutOptions{CreateOnly: true})
	case len(parts) > blob.MaxParts:
		return fault.New(fault.Exhausted, "%s has %d segments, more than the %d that are joined", key, len(parts), blob.MaxParts)
	default:
		_, err = f.Blobs.Join(ctx, key, parts)
	}
	if fault.Is(err, fault.Conflict) { // it is there, with the same bytes
		return nil
	}
	return err
}
