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
	"rollout/shared/record"
)

// Service shows, explains, submits and steers runs. It is safe for concurrent
// use.
type Service struct {
	ports      host.Ports
	deployment config.Deployment
	bucket     string // the deployment's name of it, part of run ids
	remote     bool   // the bucket is a cloud's, whose objects reclaim looks at, too
	hints      cloud.Hints
	reader     *status.Reader
	explainer  *diagnosis.Explainer
	throttle   *throttle // nil: see Throttled
}

// New returns the service of a deployment at a place of that profile.
func New(p host.Ports, d config.Deployment, at cloud.Profile) *Service {
	p = p.WithSource("api")
	r := status.NewReader(p, d, at)
	return &Service{ports: p, deployment: d, bucket: d.Bucket, remote: at.Capabilities.RemoteBucket,
		hints: at.Hints, reader: r, explainer: diagnosis.NewExplainer(p, d, r)}
}

// Runs are runs of an installation.
type Runs struct {
	Runs []status.Status `json:"runs"` // the newest first
	More int             `json:"more"` // ended runs that are left out
	// Expired is how many older runs have only their files left.
	Expired int `json:"expired,omitempty"`
}

// List returns every run, the newest first. It reads as much as there ever were runs: see
// Runs for those that matter now.
func (s *Service) List(ctx context.Context) ([]status.Status, error) {
	r, err := s.Runs(ctx, status.Page{})
	return r.Runs, err
}

// Open returns the runs that have not ended, the newest first, and those that ended just
// now.
func (s *Service) Open(ctx context.Context) ([]status.Status, error) {
	open, err := s.reader.Open(ctx)
	if err != nil {
		return nil, err
	}
	return s.newest(ctx, open)
}

// Runs returns the open runs and a page of the ended ones.
func (s *Service) Runs(ctx context.Context, page status.Page) (Runs, error) {
	workers, err := s.reader.Workers(ctx)
	if err != nil {
		return Runs{}, err
	}
	return s.runs(ctx, page, workers)
}

func (s *Service) runs(ctx context.Context, page status.Page, workers []status.WorkerStatus) (Runs, error) {
	open, err := s.reader.Open(ctx) // first: a run that ends meanwhile is among the ended ones by then
	if err != nil {
		return Runs{}, err
	}
	ended, err := s.reader.Ended(ctx, page)
	if err != nil {
		return Runs{}, err
	}
	if !ended.Indexed {
		return s.allRuns(ctx, page, workers)
	}
	known := make(map[identity.RunID]bool, len(ended.Runs))
	for _, r := range ended.Runs {
		known[r.Run] = true
	}
	open = slices.DeleteFunc(open, func(m record.Manifest) bool { return known[m.Run] })
	out, err := s.statusOf(ctx, open, workers)
	if err != nil {
		return Runs{}, err
	}
	out = append(out, ended.Runs...)
	slices.SortFunc(out, newestFirst)
	return Runs{out, ended.More, ended.Expired}, nil
}

// allRuns is runs without the index of ended ones: it reads the manifests of all.
func (s *Service) allRuns(ctx context.Context, page status.Page, workers []status.WorkerStatus) (out Runs, err error) {
	manifests, err := s.reader.Manifests(ctx)
	if err != nil {
		return out, err
	}
	if out.Runs, err = s.statusOf(ctx, manifests, workers); err != nil {
		return out, err
	}
	lastFirst := func(a, b status.Status) int { return b.Ended().Compare(a.Ended()) }
	slices.SortStableFunc(out.Runs, lastFirst)
	ended := 0
	out.Runs = slices.DeleteFunc(out.Runs, func(r status.Status) bool {
		if !r.Phase.Ended() {
			return false
		}
		ended++
		beyond := page.Limit > 0 && ended > page.Limit || !page.Since.IsZero() && r.Ended().Before(page.Since)
		if beyond {
			out.More++
		}
		return beyond
	})
	slices.SortFunc(out.Runs, newestFirst)
	return out, nil
}

// statusOf returns the runs with these manifests, in their order.
func (s *Service) statusOf(ctx context.Context, ms []record.Manifest, workers []status.WorkerStatus) (
	[]status.Status, error) {
	all, err := s.reader.ProgressOf(ctx, ms, workers)
	if err != nil {
		return nil, err
	}
	now := s.ports.Clock.Now()
	out := make([]status.Status, len(all))
	for i, p := range all {
		out[i] = diagnosis.StatusOf(p, now)
	}
	return out, nil
}

func newestFirst(a, b status.Status) int {
	return cmp.Or(b.CreatedAt.Compare(a.CreatedAt), cmp.Compare(b.Run, a.Run))
}

// Expired returns how many older runs have only their files left.
func (s *Service) Expired(ctx context.Context) (int, error) { return s.reader.Expired(ctx) }

// KnownUploads returns which of the uploads are runs, or the inputs of earlier runs.
func (s *Service) KnownUploads(ctx context.Context, uploads []identity.RunID) (map[identity.RunID]bool, error) {
	return s.reader.KnownUploads(ctx, uploads)
}

// Show returns one run; NotFound if there is no run of that id.
func (s *Service) Show(ctx context.Context, id identity.RunID) (status.Status, error) {
	workers, err := s.reader.Workers(ctx)
	if err != nil {
		return status.Status{}, err
	}
	return s.show(ctx, id, workers)
}

// ShowAll returns those of the runs that exist, by their ids.
func (s *Service) ShowAll(ctx context.Context, ids []identity.RunID) (map[identity.RunID]status.Status, error) {
	ms, err := host.LoadManifests(ctx, s.ports.Docs, ids)
	if err != nil {
		return nil, err
	}
	ms = slices.DeleteFunc(ms, func(m record.Manifest) bool { return m.Run == "" })
	runs, err := s.newest(ctx, ms)
	out := make(map[identity.RunID]status.Status, len(runs))
	for _, r := range runs {
		out[r.Run] = r
	}
	return out, err
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
