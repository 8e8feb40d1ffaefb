package api

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"rollout/shared/blob"
	"rollout/shared/config"
	"rollout/shared/core/identity"
	"rollout/shared/fault"
	"rollout/shared/host"
	"rollout/shared/queue"
	"rollout/shared/record"
)

// Overview is an installation, or what of it concerns one run, at one time.
type Overview struct {
	Runs    []Status       `json:"runs"`    // the newest first
	Workers []WorkerStatus `json:"workers"` // the living first
	Queues  []QueueStatus  `json:"queues"`  // by name
	// Uploads are prompts files that are no run (yet); never of one run's.
	Uploads []Upload `json:"uploads"`
}

// QueueStatus is how much is in a queue.
type QueueStatus struct {
	Queue   string `json:"queue"`
	Waiting int    `json:"waiting"` // messages that can be received now
	Hidden  int    `json:"hidden"`  // being handled, or to come later
	Dead    int    `json:"dead"`    // its dead letters
}

// Upload is an object under prompts/ that is no run.
type Upload struct {
	Key string    `json:"key"`
	At  time.Time `json:"at"`
	Why string    `json:"why"` // why it is none, or none yet
}

// Overview returns everything; Look what concerns one run.
func (s *Service) Overview(ctx context.Context) (Overview, error) {
	workers, err := s.Workers(ctx)
	if err != nil {
		return Overview{}, err
	}
	o := Overview{Workers: workers}
	if o.Runs, err = s.list(ctx, workers); err != nil {
		return o, err
	}
	if o.Queues, err = s.queues(ctx, o); err != nil {
		return o, err
	}
	o.Uploads, err = s.uploads(ctx, o.Runs)
	return o, err
}

// RunOverview returns what concerns the run: the workers of its pool and those that
// hold shards of it, and the queues that its work goes through.
func (s *Service) RunOverview(ctx context.Context, id identity.RunID) (Overview, error) {
	workers, err := s.Workers(ctx)
	if err != nil {
		return Overview{}, err
	}
	st, err := s.show(ctx, id, workers)
	if err != nil {
		return Overview{}, err
	}
	o := Overview{Runs: []Status{st}, Workers: []WorkerStatus{}, Uploads: []Upload{}}
	for _, w := range workers {
		if w.Pool == st.Pool || holdsOf(w, id) > 0 {
			o.Workers = append(o.Workers, w)
		}
	}
	o.Queues, err = s.queues(ctx, o)
	return o, err
}

// queues tells the depths of the functions' queues and of those of the pools
// in o, where the store can. A deployment has queues for the pools of its config
// alone: one that was taken out of it has none, whoever once worked there.
func (s *Service) queues(ctx context.Context, o Overview) ([]QueueStatus, error) {
	out := []QueueStatus{}
	d, ok := s.ports.Queues.(queue.Depther)
	if !ok {
		return out, nil
	}
	names := map[string]bool{host.CoordinateQueue: true, host.TaskQueue: true, host.PlanQueue: true}
	note := func(pool string) {
		if pool != "" && s.hasQueue(pool) { // a refused run has none
			names[host.WorkQueue(pool)] = true
		}
	}
	for _, r := range o.Runs {
		note(r.Pool)
	}
	for _, w := range o.Workers {
		note(w.Pool)
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		q := QueueStatus{Queue: name}
		var err error
		if q.Waiting, q.Hidden, err = d.Depth(ctx, name); err != nil {
			return out, fault.Wrap(err, "look at queue %s", name)
		}
		visible, hidden, err := d.Depth(ctx, queue.DeadLetterQueue(name))
		if err != nil {
			return out, fault.Wrap(err, "look at the dead letters of queue %s", name)
		}
		q.Dead = visible + hidden
		out = append(out, q)
	}
	return out, nil
}

// hasQueue reports whether there is a queue of the pool's work: on a laptop
// there is any that is asked for.
func (s *Service) hasQueue(pool string) bool {
	return s.cloud.Provider == "" || slices.ContainsFunc(s.pools, func(p config.Pool) bool { return p.Name == pool })
}

// Bounds of uploads: objects looked at, and told.
const (
	maxLooked  = 10_000
	maxUploads = 100
)

// uploads looks for prompts files that are none of the runs.
func (s *Service) uploads(ctx context.Context, runs []Status) ([]Upload, error) {
	known := make(map[identity.RunID]bool, len(runs))
	for _, r := range runs {
		known[r.Run] = true
	}
	out := []Upload{}
	after := ""
	for looked := 0; looked < maxLooked && len(out) < maxUploads; {
		infos, err := s.ports.Blobs.List(ctx, record.PromptsPrefix, after, blob.MaxList)
		if err != nil {
			if ctx.Err() != nil {
				return out, fault.WithKind(fault.Canceled, ctx.Err(), "list the uploads")
			}
			// What can't be listed becomes no run: that is worth telling, and
			// no reason to tell nothing else.
			return append(out, Upload{Key: cmp.Or(after, record.PromptsPrefix), At: s.ports.Clock.Now().UTC(), Why: "it can't be read: " + err.Error()}), nil
		}
		for _, info := range infos {
			after = info.Key
			if known[identity.UploadRun(s.bucket, info.Key, info.Version)] {
				continue
			}
			if why := s.whyNoRun(ctx, info); why != "" && len(out) < maxUploads {
				out = append(out, Upload{Key: info.Key, At: info.ModTime.UTC(), Why: why})
			}
		}
		looked += len(infos)
		if len(infos) < blob.MaxList {
			break
		}
	}
	return out, nil
}

// whyNoRun says why an object is no run; "" for one that shall be none.
func (s *Service) whyNoRun(ctx context.Context, info blob.Info) string {
	if strings.HasSuffix(info.Key, ".toml") {
		return ""
	}
	if err := CheckInputKey(info.Key); err != nil {
		return err.Error()
	}
	r, _, err := s.ports.Blobs.Get(ctx, info.Key, blob.GetOptions{Version: info.Version, Length: 1})
	switch {
	case fault.Is(err, fault.NotFound): // replaced or removed meanwhile
		return ""
	case err != nil:
		return "it can't be read: " + err.Error()
	}
	_ = r.Close() // only opened to see whether it can be
	return uploadHint(s.cloud)
}
