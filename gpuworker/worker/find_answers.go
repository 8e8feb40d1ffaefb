package worker

import (
	"context"
	"slices"
	"time"

	"rollout/shared/core/health"
	"rollout/shared/core/identity"
	"rollout/shared/core/interval"
	"rollout/shared/core/run"
	"rollout/shared/core/shard"
	"rollout/shared/fault"
	"rollout/shared/host"
	"rollout/shared/record"
	"rollout/shared/result"
)

// Answers is what the documents of a run tell of its answers.
type Answers struct {
	// Found says that requests for items of the shard's role were answered, by any
	// worker: since the run began or, if it was ever refused, since it was last resumed.
	// Answers that no document of a shard has yet are known from their holder's heartbeat.
	Found bool
	// Example is the line of an item that was answered; nil if none could be read.
	Example []byte
}

// FindAnswers reads what the run's documents tell of its answers. It takes a few reads:
// call it before the run is refused, not for each shard.
func (s *Shard) FindAnswers(ctx context.Context) (Answers, error) { return s.findAnswers(ctx) }

// AnsweredItem returns an item of the shard that has an output row; false if none has.
func (s *Shard) AnsweredItem() (item int, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, row := range s.rows {
		if row != nil && s.class[i] == "" {
			return i, true
		}
	}
	return 0, false
}

// Bounds of what findAnswers reads: documents of shards, of those that are done and of
// those that are not, and rows of shards.
const (
	maxCandidates = 128
	maxExamples   = 3
)

// findAnswers is Shard.FindAnswers for a held shard of that role.
func (w *Worker) findAnswers(ctx context.Context, h *heldShard, role uint32) (out Answers, err error) {
	var ctl record.Control
	if _, _, err = host.Load(ctx, w.Docs, record.ControlKey(h.run), &ctl); err != nil {
		return out, err
	}
	var state run.State
	if _, _, err = host.Load(ctx, w.Docs, record.CoordinatorKey(h.run), &state); err != nil {
		return out, err
	}
	counts := state.Counts
	if int(role) < len(state.Roles) {
		counts = state.Roles[role].Counts
	}
	var since time.Time
	if ctl.Refused != "" {
		since = ctl.At
	}
	out.Found = since.IsZero() && counts.HasAnswers()
	docs, err := w.shardDocs(ctx, h.run, slices.Concat(lastOf(state.Done.Set.Ranges()), lastOf(state.Open())))
	if err != nil {
		return out, err
	}
	if !out.Found {
		out.Found, err = w.holdersHaveAnswers(ctx, h, docs, role, since)
		if err != nil {
			return out, err
		}
	}
	tries := 0
	for _, d := range docs {
		if tries == maxExamples {
			break
		}
		if !d.Counts.HasAnswers() || !since.IsZero() && (d.Attempt > 1 || !d.ClaimedAt.After(since)) {
			continue // its answers may be older than the resume
		}
		if of, err := w.index.RoleOf(ctx, h.manifest, d.Shard); err != nil || of != role {
			continue
		}
		out.Found = true
		tries++
		if out.Example, err = w.answeredLine(ctx, h.manifest, d); err == nil && out.Example != nil {
			break
		}
		w.Log.DebugContext(ctx, "answered item can't be read", "run", d.Run, "shard", d.Shard, "error", err)
	}
	return out, nil
}

// holdersHaveAnswers reports whether a holder of the run's shards had a request for an item
// of the role answered after since, by the holder's heartbeat.
func (w *Worker) holdersHaveAnswers(
	ctx context.Context, h *heldShard, docs []shard.Doc, role uint32, since time.Time,
) (bool, error) {
	var keys []string
	for _, d := range docs {
		if key := record.HeartbeatKey(d.Worker); d.State == shard.Running && !slices.Contains(keys, key) {
			keys = append(keys, key)
		}
	}
	beats, err := w.Docs.GetMany(ctx, keys)
	if err != nil {
		return false, fault.Wrap(err, "read the heartbeats of the holders of run %s", h.run)
	}
	for _, doc := range beats {
		var b health.Heartbeat
		if doc.Value == nil || record.Decode(doc.Value, &b, "document "+doc.Key) != nil {
			continue // it may be of a worker of another version
		}
		for _, held := range b.Holds {
			if held.Run != h.run || !held.AnsweredAt.After(since) {
				continue
			}
			if of, err := w.index.RoleOf(ctx, h.manifest, held.Shard); err == nil && of == role {
				return true, nil
			}
		}
	}
	return false, nil
}

// lastOf returns the last numbers of the ranges, at most maxCandidates, the highest
// first.
func lastOf(ranges []interval.Range) (out []int) {
	for _, r := range slices.Backward(ranges) {
		for n := r.Hi - 1; n >= r.Lo && len(out) < maxCandidates; n-- {
			out = append(out, n)
		}
	}
	return out
}

// shardDocs reads the documents of shards, in their order. It leaves out those that have
// none.
func (w *Worker) shardDocs(ctx context.Context, of identity.RunID, shards []int) (out []shard.Doc, err error) {
	keys := make([]string, len(shards))
	for i, n := range shards {
		keys[i] = identity.ShardKey(of, n)
	}
	docs, err := w.Docs.GetMany(ctx, keys)
	if err != nil {
		return nil, fault.Wrap(err, "read the shards of run %s", of)
	}
	for _, d := range docs {
		if d.Value == nil {
			continue
		}
		var s shard.Doc
		if err := record.Decode(d.Value, &s, "document "+d.Key); err != nil {
			return nil, err
		}
		out = append(out, s)
	}
	return out, nil
}

// answeredLine returns the line of an answered item of the shard; nil if its rows are of
// none.
func (w *Worker) answeredLine(ctx context.Context, m record.Manifest, d shard.Doc) ([]byte, error) {
	in, rows, err := result.ReadShard(ctx, w.Blobs, w.index, m, d)
	for _, r := range rows {
		if r.Class == "" && r.Item < len(in.Lines) {
			return in.Lines[r.Item].Bytes, nil
		}
	}
	return nil, err
}
