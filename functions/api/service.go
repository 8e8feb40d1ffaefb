package api

import (
	"cmp"
	"context"
	"slices"

	"rollout/functions/diagnosis"
	"rollout/functions/status"
	"rollout/shared/cloud"
	"rollout/shared/config"
	"rollout/shared/core/identity"
	"rollout/shared/host"
)

// Service shows, explains, submits and steers runs. It is safe for concurrent
// use.
type Service struct {
	ports     host.Ports
	bucket    string // the deployment's name of it, part of run ids
	hints     cloud.Hints
	reader    *status.Reader
	explainer *diagnosis.Explainer
}

// New returns the service of a deployment at a place of that profile.
func New(p host.Ports, d config.Deployment, at cloud.Profile) *Service {
	p = p.WithSource("api")
	r := status.NewReader(p, d, at)
	return &Service{ports: p, bucket: d.Bucket, hints: at.Hints, reader: r, explainer: diagnosis.NewExplainer(p, d, r)}
}

// List returns every run, the newest first.
func (s *Service) List(ctx context.Context) ([]status.Status, error) {
	workers, err := s.reader.Workers(ctx)
	if err != nil {
		return nil, err
	}
	return s.list(ctx, workers)
}

func (s *Service) list(ctx context.Context, workers []status.WorkerStatus) ([]status.Status, error) {
	manifests, err := s.reader.Manifests(ctx)
	if err != nil {
		return nil, err
	}
	all, err := s.reader.ProgressOf(ctx, manifests, workers)
	if err != nil {
		return nil, err
	}
	now := s.ports.Clock.Now()
	out := make([]status.Status, len(all))
	for i, p := range all {
		out[i] = diagnosis.StatusOf(p, now)
	}
	slices.SortFunc(out, newestFirst)
	return out, nil
}

func newestFirst(a, b status.Status) int {
	return cmp.Or(b.CreatedAt.Compare(a.CreatedAt), cmp.Compare(b.Run, a.Run))
}

// Show returns one run; NotFound if there is no run of that id.
func (s *Service) Show(ctx context.Context, id identity.RunID) (status.Status, error) {
	workers, err := s.reader.Workers(ctx)
	if err != nil {
		return status.Status{}, err
	}
	return s.show(ctx, id, workers)
}

func (s *Service) show(ctx context.Context, id identity.RunID, workers []status.WorkerStatus) (status.Status, error) {
	p, err := s.reader.Progress(ctx, id, workers)
	if err != nil {
		return status.Status{}, err
	}
	return diagnosis.StatusOf(p, s.ports.Clock.Now()), nil
}

// Workers returns every worker that has a heartbeat: living workers first, then
// by pool and id.
func (s *Service) Workers(ctx context.Context) ([]status.WorkerStatus, error) {
	return s.reader.Workers(ctx)
}

// ShowItem shows the items of a run that item names. See diagnosis.Explainer.
func (s *Service) ShowItem(ctx context.Context, id identity.RunID,
	item string) (status.Status, []diagnosis.Shown, error) {
	return s.explainer.Show(ctx, id, item)
}

// Explain explains the run and, unless item is "", the items that item names.
// See diagnosis.Explainer.
func (s *Service) Explain(ctx context.Context, id identity.RunID, item string) (diagnosis.Explanation, error) {
	return s.explainer.Explain(ctx, id, item)
}
