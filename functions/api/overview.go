package api

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"rollout/functions/diagnosis"
	"rollout/functions/status"
	"rollout/shared/blob"
	"rollout/shared/core/identity"
	"rollout/shared/fault"
	"rollout/shared/input"
	"rollout/shared/record"
)

// Overview is the state of an installation, or the part that concerns one run,
// at one time.
type Overview struct {
	Runs    []status.Status       `json:"runs"`              // the newest first
	More    int                   `json:"more"`              // ended runs that are left out
	Expired int                   `json:"expired,omitempty"` // as Runs.Expired
	Workers []status.WorkerStatus `json:"workers"`           // the living first
	Queues  []status.QueueStatus  `json:"queues"`            // by name
	// Uploads are prompts files that are not a run, or not yet. The overview of
	// one run has none.
	Uploads []Upload `json:"uploads"`
	// Trials are what the one run that is shown has in flight; nil if it is not asked for.
	Trials *diagnosis.TrialsInFlight `json:"-"`
}

// Upload is an object under prompts/ that is not a run.
type Upload struct {
	Key string    `json:"key"`
	At  time.Time `json:"at"`
	Why string    `json:"why"` // why it is not a run, or not yet
}

// Overview returns the state of the whole installation, with a page of its ended runs.
func (s *Service) Overview(ctx context.Context, page status.Page) (Overview, error) {
	workers, err := s.reader.Workers(ctx)
	if err != nil {
		return Overview{}, err
	}
	o := Overview{Workers: workers}
	runs, err := s.runs(ctx, page, workers)
	if err != nil {
		return o, err
	}
	o.Runs, o.More, o.Expired = runs.Runs, runs.More, runs.Expired
	if o.Queues, err = s.reader.Queues(ctx, o.pools()); err != nil {
		return o, err
	}
	o.Uploads, err = s.uploads(ctx, o.Runs)
	return o, err
}

// RunOverview returns what concerns the run: the workers of its pools, the
// workers that hold its shards, and the queues that its work passes through.
func (s *Service) RunOverview(ctx context.Context, id identity.RunID) (Overview, error) {
	workers, err := s.reader.Workers(ctx)
	if err != nil {
		return Overview{}, err
	}
	st, err := s.show(ctx, id, workers)
	if err != nil {
		return Overview{}, err
	}
	o := Overview{Runs: []status.Status{st}, Workers: []status.WorkerStatus{}, Uploads: []Upload{}}
	for _, w := range workers {
		if slices.Contains(st.Pools(), w.Pool) || w.HeldOf(id) > 0 {
			o.Workers = append(o.Workers, w)
		}
	}
	o.Queues, err = s.reader.Queues(ctx, o.pools())
	return o, err
}

// pools are the pools of the overview's runs and workers.
func (o Overview) pools() (pools []string) {
	for _, r := range o.Runs {
		pools = append(pools, r.Pools()...)
	}
	for _, w := range o.Workers {
		pools = append(pools, w.Pool)
	}
	return pools
}

// Bounds of uploads: how many objects are read, and how many are returned.
const (
	maxLooked  = 10_000
	maxUploads = 100
)

// uploads returns the prompts files that are not one of the runs. A listing
// that fails is reported as an Upload, so that the rest of the overview is
// still shown.
func (s *Service) uploads(ctx context.Context, runs []status.Status) ([]Upload, error) {
	known := make(map[identity.RunID]bool, len(runs))
	for _, r := range runs {
		known[r.Run] = true
	}
	out, after := s.skipped(ctx), ""
	for looked := 0; looked < maxLooked && len(out) < maxUploads; {
		infos, err := s.ports.Blobs.List(ctx, record.PromptsPrefix, after, blob.MaxList)
		if err != nil {
			if ctx.Err() != nil {
				return out, fault.WithKind(fault.Canceled, ctx.Err(), "list the uploads")
			}
			return append(out, Upload{Key: cmp.Or(after, record.PromptsPrefix), At: s.ports.Clock.Now().UTC(),
				Why: "it can't be read: " + err.Error()}), nil
		}
		missing, err := s.withoutRun(ctx, infos, known)
		if err != nil {
			return out, err
		}
		for _, info := range missing {
			if why := s.whyNoRun(ctx, info); why != "" && len(out) < maxUploads {
				out = append(out, Upload{Key: info.Key, At: info.ModTime.UTC(), Why: why})
			}
		}
		if len(infos) > 0 {
			after = infos[len(infos)-1].Key
		}
		looked += len(infos)
		if len(infos) < blob.MaxList {
			break
		}
	}
	return out, nil
}

// skipped returns the entries under prompts/ that are not objects, such as symbolic
// links in a folder.
func (s *Service) skipped(ctx context.Context) []Upload {
	out := []Upload{}
	lister, ok := s.ports.Blobs.(blob.SkippedLister)
	if !ok {
		return out
	}
	entries, err := lister.ListSkipped(ctx, record.PromptsPrefix, maxUploads)
	if err != nil { // the list of objects meets it too, and tells it
		return out
	}
	for _, e := range entries {
		out = append(out, Upload{Key: e.Key, At: s.ports.Clock.Now().UTC(), Why: "it is not a file: " + e.Why.Error()})
	}
	return out
}

// announcedAfter is the age from which a prompts file of a cloud has been looked at by
// reclaim, which sends lost events again every hour (see reclaim.ScanUploads).
const announcedAfter = 2 * time.Hour

// withoutRun returns the objects that are not the input of a run, neither of one that is
// known nor of another one. It asks for many runs at once; in a cloud only for those of recent
// objects, as reclaim finds the others.
func (s *Service) withoutRun(ctx context.Context, infos []blob.Info, known map[identity.RunID]bool) (
	out []blob.Info, err error) {
	id := func(i blob.Info) identity.RunID { return identity.UploadRun(s.bucket, i.Key, i.Version) }
	var unknown []identity.RunID
	for _, info := range infos {
		switch {
		case known[id(info)], strings.HasSuffix(info.Key, ".toml"):
			continue
		case input.IsPromptsKey(info.Key):
			if s.remote && s.ports.Clock.Now().Sub(info.ModTime) > announcedAfter {
				continue
			}
			unknown = append(unknown, id(info))
		}
		out = append(out, info)
	}
	if len(unknown) == 0 {
		return out, nil
	}
	found, err := s.reader.KnownUploads(ctx, unknown)
	return slices.DeleteFunc(out, func(i blob.Info) bool { return found[id(i)] }), err
}

// whyNoRun says why the object is not a run; "" for one that is not meant to be
// one.
func (s *Service) whyNoRun(ctx context.Context, info blob.Info) string {
	if strings.HasSuffix(info.Key, ".toml") || blob.IsPartial(info.Key) {
		return ""
	}
	if err := input.CheckPromptsKey(info.Key); err != nil {
		return err.Error()
	}
	r, _, err := s.ports.Blobs.Get(ctx, info.Key, blob.GetOptions{Version: info.Version, Length: 1})
	switch {
	case fault.Is(err, fault.NotFound): // replaced or removed meanwhile
		return ""
	case err != nil:
		return "it can't be read: " + err.Error()
	}
	_ = r.Close() // opened only to find out whether it can be read
	if settler, ok := s.ports.Blobs.(blob.Settler); ok {
		if why, err := settler.Unsettled(ctx, info.Key); err == nil && why != "" {
			return why
		}
	}
	return s.hints.PendingUpload
}
