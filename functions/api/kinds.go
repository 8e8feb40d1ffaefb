package api

import (
	"cmp"
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"time"

	"rollout/functions/diagnosis"
	"rollout/shared/config"
	"rollout/shared/core/identity"
	"rollout/shared/fault"
	"rollout/shared/record"
	"rollout/shared/rollout"
	"rollout/shared/snapshot"
)

// RolloutDetail is how a rollout went on, as GET /v1/runs/{id}/rollout answers it.
type RolloutDetail struct {
	Steps    []RolloutStep     `json:"steps"`    // the last batches, the oldest first
	Guidance []json.RawMessage `json:"guidance"` // GuidanceRevision, the oldest first
}

// RolloutStep is a batch whose answers are in.
type RolloutStep struct {
	Step    int      `json:"step"` // the batch, from 1
	Mean    *float64 `json:"mean"` // the mean score of its answers; null without scores
	Best    *float64 `json:"best"` // the highest mean up to it, of the listed batches
	Changed bool     `json:"guidance_changed"`
}

// GuidanceRevision is a step of a mission's guidance.
type GuidanceRevision struct {
	Revision int       `json:"revision"` // the step, from 0
	Mission  string    `json:"mission"`
	At       time.Time `json:"at"` // when it was made
	Text     string    `json:"text"`
	Mean     *float64  `json:"mean"` // the mean score of the answers under it; null without scores
}

// Parts of a rollout's detail, in bytes.
const (
	guidanceBytes = 48 << 10
	maxRevision   = 20 << 10
)

// getRollout answers with the last batches and guidance of a rollout.
func (s *Service) getRollout(r *http.Request) (int, any, error) {
	ctx := r.Context()
	p, err := s.reader.Progress(ctx, runOf(r), nil)
	if err != nil {
		return 0, nil, err
	}
	m := p.Manifest
	if m.Kind != config.KindRollout {
		return 0, nil, fault.New(fault.NotFound, "run %s is not a rollout", m.Run)
	}
	last := -1
	if p.Plan.Appended != nil {
		last = p.Plan.Appended.Input
	}
	var known record.Rollout
	if p.Rollout != nil {
		known = *p.Rollout
	}
	h, err := rollout.ReadHistory(ctx, s.ports.Blobs, m, last, known)
	if err != nil {
		return 0, nil, err
	}
	out := RolloutDetail{Steps: []RolloutStep{}}
	for _, b := range h.Batches {
		out.Steps = append(out.Steps, RolloutStep{b.Batch + 1, b.Mean, b.Best, b.Changed})
	}
	var revisions []GuidanceRevision
	for _, g := range slices.Backward(h.Revisions) { // the newest ones stay if not all fit
		revisions = append(revisions, GuidanceRevision{g.Step, g.Mission, g.At, g.Text(), g.Mean})
	}
	out.Guidance, err = fitting(revisions, guidanceBytes, maxRevision)
	slices.Reverse(out.Guidance)
	return http.StatusOK, out, err
}

// pageStart returns the number from which a page begins: the parameter `after`, which is the
// `next` of the page before; 0 without one.
func pageStart(r *http.Request) (int, error) {
	v := r.URL.Query().Get("after")
	if v == "" {
		return 0, nil
	}
	n, err := strconv.Atoi(v)
	if err != nil || n < 0 {
		return 0, fault.New(fault.Invalid, "after=%.40s must be the next of the page before", v)
	}
	return n, nil
}

// getTrials answers with a page of the grid of trials: the tasks from the number `after` on. It has
// fewer tasks if an answer has no room for all.
func (s *Service) getTrials(r *http.Request) (int, any, error) {
	from, err := pageStart(r)
	if err != nil {
		return 0, nil, err
	}
	g, err := s.explainer.Trials(r.Context(), runOf(r), from)
	if err != nil {
		return 0, nil, err
	}
	for len(g.Rows) > 1 {
		b, err := json.Marshal(g)
		if err != nil {
			return 0, nil, err
		}
		if len(b) <= pageBytes {
			break
		}
		g.Rows = g.Rows[:(len(g.Rows)+1)/2]
		next := g.Rows[len(g.Rows)-1].Number + 1
		g.Next = &next
	}
	return http.StatusOK, g, nil
}

// getActiveTrials answers with the trials that workers hold, from the schedule index `after` on.
func (s *Service) getActiveTrials(r *http.Request) (int, any, error) {
	from, err := pageStart(r)
	if err != nil {
		return 0, nil, err
	}
	out, err := s.ActiveTrials(r.Context(), runOf(r), from)
	return http.StatusOK, out, err
}

// ActiveTrials returns what a run of trials has in flight: see diagnosis.Explainer.
func (s *Service) ActiveTrials(ctx context.Context, id identity.RunID, from int) (diagnosis.TrialsInFlight, error) {
	return s.explainer.ActiveTrials(ctx, id, from)
}

// TrainingDetail is how a training went on, as GET /v1/runs/{id}/training answers it.
type TrainingDetail struct {
	Steps     []TrainingStep     `json:"steps"` // thinned, in their order
	Snapshots []TrainingSnapshot `json:"snapshots"`
}

// TrainingStep is the loss after a step. LR is null where it is not known.
type TrainingStep struct {
	Step int      `json:"step"` // from 1
	Loss float32  `json:"loss"` // the mean since the step before that is listed, in nats
	LR   *float32 `json:"lr"`
}

// TrainingSnapshot is a snapshot that is kept.
type TrainingSnapshot struct {
	ID    string    `json:"id"`
	Step  int       `json:"step"`
	At    time.Time `json:"at"`
	Bytes int64     `json:"bytes"`
}

// maxSnapshots bounds the snapshots of a training that are listed: the last ones.
const maxSnapshots = 50

// getTraining answers with the losses of a training, as of its last snapshot and of what its worker
// reports, and with its snapshots.
func (s *Service) getTraining(r *http.Request) (int, any, error) {
	ctx := r.Context()
	st, err := s.Show(ctx, runOf(r))
	if err != nil {
		return 0, nil, err
	}
	if st.Kind != config.KindTrain {
		return 0, nil, fault.New(fault.NotFound, "run %s is not a training", st.Run)
	}
	store := snapshot.Store{Blobs: s.ports.Blobs, Docs: s.ports.Docs, Clock: s.ports.Clock}
	all, err := store.List(ctx, snapshot.Filter{Run: st.Run, Kind: snapshot.TrainState, Limit: maxSnapshots})
	if err != nil {
		return 0, nil, err
	}
	out := TrainingDetail{Steps: []TrainingStep{}, Snapshots: []TrainingSnapshot{}}
	var metas []record.TrainingMeta
	for _, snap := range all {
		var meta record.TrainingMeta
		if json.Unmarshal(snap.Meta, &meta) != nil { // of another format
			continue
		}
		metas = append(metas, meta)
		one := TrainingSnapshot{ID: snap.ID, Step: meta.Step, At: snap.CreatedAt.UTC()}
		for _, part := range snap.Parts {
			one.Bytes += part.Length
		}
		out.Snapshots = append(out.Snapshots, one)
	}
	slices.SortStableFunc(out.Snapshots, func(a, b TrainingSnapshot) int { return cmp.Compare(a.Step, b.Step) })
	out.Steps = append(out.Steps, trainingSteps(metas)...)
	last := 0
	if n := len(out.Steps); n > 0 {
		last = out.Steps[n-1].Step
	}
	if t := st.Training; t != nil && t.Loss != nil && t.Step > last {
		out.Steps = append(out.Steps, TrainingStep{Step: t.Step, Loss: float32(*t.Loss)})
	}
	return http.StatusOK, out, nil
}

// trainingSteps returns the curve of the snapshot with the most steps or, of snapshots without a
// curve, a point for each.
func trainingSteps(metas []record.TrainingMeta) (out []TrainingStep) {
	slices.SortStableFunc(metas, func(a, b record.TrainingMeta) int { return cmp.Compare(a.Step, b.Step) })
	if n := len(metas); n > 0 && metas[n-1].Curve != nil {
		c := metas[n-1].Curve
		for i := range min(len(c.Steps), len(c.Loss), len(c.LR), record.MaxTrainingCurve) {
			out = append(out, TrainingStep{c.Steps[i], c.Loss[i], &c.LR[i]})
		}
		return out
	}
	for _, m := range metas {
		if m.Loss != nil {
			out = append(out, TrainingStep{Step: m.Step, Loss: float32(*m.Loss)})
		}
	}
	return out
}
