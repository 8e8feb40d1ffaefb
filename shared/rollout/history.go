package rollout

import (
	"context"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"rollout/shared/blob"
	"rollout/shared/core/guidance"
	"rollout/shared/core/identity"
	"rollout/shared/fault"
	"rollout/shared/record"
)

// History is how a rollout went on: its last batches and the last steps of its guidance.
type History struct {
	Batches   []BatchScore // the oldest first
	Revisions []Revision   // by mission, in the order of the config, the oldest first
}

// BatchScore is a global batch whose answers are in.
type BatchScore struct {
	Batch int      // from 0
	Mean  *float64 // the mean score of its answers; nil without scores
	Best  *float64 // the highest Mean up to it, of the batches that are listed
	// Changed says that a mission's guidance is another one than in the batch before.
	Changed bool
}

// Revision is a step of a mission's guidance.
type Revision struct {
	guidance.Guidance
	At   time.Time // when it was made or, if its work was deleted, when the run ended
	Mean *float64  // the mean score of the answers under it; nil without scores
}

// Bounds of a History, and of the work for it.
const (
	maxBatches       = 50
	maxRevisions     = 50
	maxHistoryStages = 200 // that are read
	stagesTogether   = 4
)

// ReadHistory returns the last batches of a run and the last steps of its guidance, at most 50 of
// each, from at most 200 stages. last is the number of the plan's last object, -1 without one.
// known is what else is known of the run: of an ended one its summary, which says the rest if the
// stages were deleted.
func ReadHistory(ctx context.Context, blobs blob.Store, m record.Manifest, last int, known record.Rollout) (
	h History, err error) {
	stages, err := lastStages(ctx, blobs, m, last)
	if err != nil {
		return h, err
	}
	h.Batches = batchScores(stages)
	newest := known.Guidance
	var sums map[string][]StepSum
	if n := len(stages); n > 0 {
		newest, sums = stages[n-1].Guidance, stages[n-1].Steps
	}
	var missions []string
	for _, mission := range m.Config.Missions {
		if _, ok := newest[mission.Name]; ok && len(missions) < maxRevisions {
			missions = append(missions, mission.Name)
		}
	}
	for _, mission := range missions {
		for step := max(0, newest[mission]+1-maxRevisions/len(missions)); step <= newest[mission]; step++ {
			r, err := readRevision(ctx, blobs, m.Run, mission, step)
			if fault.Is(err, fault.NotFound) {
				continue
			}
			if err != nil {
				return h, err
			}
			switch scores := known.Missions[mission].Scores; {
			case step < len(sums[mission]):
				r.Mean = ratio(sums[mission][step].Score, float64(sums[mission][step].Scored))
			case step < len(scores):
				r.Mean = scores[step]
			}
			h.Revisions = append(h.Revisions, r)
		}
	}
	return h, nil
}

// lastStages returns the last stages of a run, in their order, without those that do not exist: as
// many as maxBatches batches have. The stage behind last may have been written already.
func lastStages(ctx context.Context, blobs blob.Store, m record.Manifest, last int) (out []Stage, err error) {
	first := len(m.Inputs)
	if last < first {
		return nil, nil
	}
	batches := 0
	for to := last + 2; to > first && batches <= maxBatches && last+2-to < maxHistoryStages; {
		from := max(first, to-stagesTogether)
		part := make([]*Stage, to-from)
		g, ctx := errgroup.WithContext(ctx)
		for i := range part {
			g.Go(func() error {
				s, err := ReadStage(ctx, blobs, m.Run, from+i)
				if fault.Is(err, fault.NotFound) {
					return nil
				}
				part[i] = &s
				return err
			})
		}
		if err := g.Wait(); err != nil {
			return nil, err
		}
		for _, s := range slices.Backward(part) {
			if s == nil {
				continue
			}
			out = append(out, *s)
			if s.beginsBatch() {
				batches++
			}
		}
		to = from
	}
	slices.Reverse(out)
	return out, nil
}

// beginsBatch reports whether the stage asks the first tickets of a batch, for the first time.
func (s Stage) beginsBatch() bool { return s.Kind == Answering && !s.Replaces && s.Restarts == 0 }

// batchScores returns the last batches that begin and are over within the stages.
func batchScores(stages []Stage) (out []BatchScore) {
	var begin *Stage // of the batch whose answers are awaited
	var before map[string]int
	for i, s := range stages {
		if begin != nil && (s.Kind != Answering || s.beginsBatch()) {
			changed := false
			for mission, step := range begin.Guidance {
				was, ok := before[mission]
				changed = changed || ok && was != step
			}
			mean := ratio(s.Totals.Score-begin.Totals.Score, float64(s.Totals.Scored-begin.Totals.Scored))
			out = append(out, BatchScore{Batch: begin.Batch, Mean: mean, Changed: changed})
			begin, before = nil, begin.Guidance
		}
		if s.beginsBatch() {
			begin = &stages[i]
		}
	}
	out = out[max(0, len(out)-maxBatches):]
	var best *float64
	for i := range out {
		if mean := out[i].Mean; mean != nil && (best == nil || *mean > *best) {
			best = mean
		}
		out[i].Best = best
	}
	return out
}

// readRevision reads a step of a mission's guidance: from the work of the run, which says when it
// was made, else from its files.
func readRevision(ctx context.Context, blobs blob.Store, run identity.RunID, mission string, step int) (
	r Revision, err error) {
	b, info, err := readInfo(ctx, blobs, guidanceKey(run, mission, step))
	if fault.Is(err, fault.NotFound) {
		b, info, err = readInfo(ctx, blobs, GuidanceKey(run, mission, step))
	}
	if err != nil {
		return r, err
	}
	r.At = info.ModTime.UTC()
	r.Guidance, err = guidance.Decode(b)
	return r, err
}
