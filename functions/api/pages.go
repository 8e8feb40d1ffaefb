package api

import (
	"cmp"
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"time"

	"rollout/functions/status"
	"rollout/shared/core/identity"
	"rollout/shared/core/run"
	"rollout/shared/fault"
	"rollout/shared/record"
)

// RunsPage is a page of the runs of an installation, as GET /v1/runs answers it. The open runs
// come first, the newest first, then the ended ones, the last to end first. Within a page the
// newest stands first.
type RunsPage struct {
	Runs []json.RawMessage `json:"runs"` // status.Status
	// More is how many ended runs the first page leaves out; absent on others.
	More *int `json:"more,omitempty"`
	// Expired is how many older runs have only their files left.
	Expired int `json:"expired,omitempty"`
	// Next is the run to name in after= for the next page; null if there is none.
	Next  *identity.RunID `json:"next"`
	Ended int             `json:"ended"` // how many runs have ended and are kept
}

// runsQuery says which runs a page has.
type runsQuery struct {
	limit int
	since time.Time // of ended runs: only those that ended since
	after identity.RunID
	phase run.Phase
	bytes int // of the runs on the page, as JSON
}

// Sizes of a page of runs: how many it has unless the request says so, and at most.
const (
	defaultRuns = 100
	maxRuns     = 10_000
)

// runsQueryOf reads the parameters of a request.
func runsQueryOf(r *http.Request, size int) (q runsQuery, err error) {
	v := r.URL.Query()
	q = runsQuery{limit: defaultRuns, after: identity.RunID(v.Get("after")), phase: run.Phase(v.Get("phase")), bytes: size}
	if text := v.Get("limit"); text != "" {
		if q.limit, err = strconv.Atoi(text); err != nil || q.limit < 1 || q.limit > maxRuns {
			return q, fault.New(fault.Invalid, "limit=%.20s must be a number of runs from 1 to %d", text, maxRuns)
		}
	}
	if text := v.Get("since"); text != "" {
		if q.since, err = time.Parse(time.RFC3339, text); err != nil {
			return q, fault.New(fault.Invalid, "since=%.40s must be a time like 2026-03-01T12:00:00Z", text)
		}
	}
	if q.after != "" && !q.after.Valid() {
		return q, fault.New(fault.Invalid, "after=%.40s must be the id of a run", q.after)
	}
	return q, nil
}

func (s *Service) getRuns(r *http.Request) (int, any, error) {
	q, err := runsQueryOf(r, pageBytes)
	if err != nil {
		return 0, nil, err
	}
	workers, err := s.reader.Workers(r.Context())
	if err != nil {
		return 0, nil, err
	}
	page, _, err := s.runsPage(r.Context(), q, workers)
	return http.StatusOK, page, err
}

// runCollector collects the runs of a page.
type runCollector struct {
	runsQuery
	runs []status.Status
	raw  map[identity.RunID]json.RawMessage
	last identity.RunID // the last that was looked at
	full bool
}

// maxStatus bounds the status of a run in a list, in bytes.
const maxStatus = 6 << 10

// add adds a run that the query is for, once. The page is full once one does not fit.
func (c *runCollector) add(s status.Status) error {
	_, added := c.raw[s.Run] // a run that ended meanwhile was among the open ones
	switch {
	case added:
		c.last = s.Run
		return nil
	case c.full:
		return nil
	case c.phase != "" && s.Phase != c.phase, s.Phase.Ended() && s.Ended().Before(c.since):
		c.last = s.Run
		return nil
	case len(c.runs) == c.limit:
		c.full = true
		return nil
	}
	b, err := encode(s, maxStatus)
	if err != nil {
		return err
	}
	if c.bytes -= len(b) + 1; c.bytes < 0 {
		c.full = true
		return nil
	}
	c.runs, c.raw[s.Run], c.last = append(c.runs, s), b, s.Run
	return nil
}

// page returns what was collected. more says that there are further runs.
func (c *runCollector) page(more bool) RunsPage {
	slices.SortFunc(c.runs, newestFirst)
	p := RunsPage{Runs: []json.RawMessage{}}
	for _, s := range c.runs {
		p.Runs = append(p.Runs, c.raw[s.Run])
	}
	if more && c.last != "" {
		p.Next = &c.last
	}
	return p
}

// Bounds of the work for one page: runs whose documents are read together, and ended runs that a
// filter passes over.
const (
	runsTogether = 50
	maxPassed    = 2000
)

// runsPage returns a page of the runs, also as their status.
func (s *Service) runsPage(ctx context.Context, q runsQuery, workers []status.WorkerStatus) (
	RunsPage, []status.Status, error) {
	c := &runCollector{runsQuery: q, raw: map[identity.RunID]json.RawMessage{}}
	// Open runs first: a run that ends meanwhile is among the ended ones by then.
	inOpen, err := s.addOpen(ctx, c, workers)
	if err != nil {
		return RunsPage{}, nil, err
	}
	after := ""
	if q.after != "" && !inOpen {
		st, err := s.show(ctx, q.after, workers)
		if err != nil {
			return RunsPage{}, nil, fault.Wrap(err, "find the run of after=")
		}
		after = record.EndedKey(st.Ended(), st.Run)
	}
	limit := min(q.limit, runsTogether*2)
	var ended status.Ended
	more := c.full
	for passed := 0; !c.full; passed += len(ended.Runs) {
		if ended, err = s.reader.Ended(ctx, status.Page{Limit: limit, Since: q.since, After: after}); err != nil {
			return RunsPage{}, nil, err
		}
		if !ended.Indexed {
			return s.unindexedPage(ctx, q, workers)
		}
		for _, r := range ended.Runs {
			if err := c.add(r); err != nil {
				return RunsPage{}, nil, err
			}
		}
		if more = c.full || len(ended.Runs) == limit; !more || passed > maxPassed {
			break
		}
		last := ended.Runs[len(ended.Runs)-1]
		after = record.EndedKey(last.Ended(), last.Run)
	}
	if more && ended.All == 0 { // the open runs alone fill the page
		if ended, err = s.reader.Ended(ctx, status.Page{Limit: 1}); err != nil {
			return RunsPage{}, nil, err
		}
	}
	p := c.page(more)
	p.Expired, p.Ended = ended.Expired, ended.All
	if q.after == "" {
		left := ended.All
		for _, r := range c.runs {
			if r.Phase.Ended() {
				left--
			}
		}
		left = max(0, left)
		p.More = &left
	}
	return p, c.runs, nil
}

// addOpen adds the open runs, the newest first, behind the one that the query names, and reports
// whether that is one of them.
func (s *Service) addOpen(ctx context.Context, c *runCollector, workers []status.WorkerStatus) (found bool, err error) {
	open, err := s.reader.Open(ctx)
	if err != nil {
		return false, err
	}
	slices.SortFunc(open, func(a, b record.Manifest) int {
		return cmp.Or(b.CreatedAt.Compare(a.CreatedAt), cmp.Compare(b.Run, a.Run))
	})
	if c.after != "" {
		i := slices.IndexFunc(open, func(m record.Manifest) bool { return m.Run == c.after })
		if i < 0 {
			return false, nil
		}
		open = open[i+1:]
	}
	for part := range slices.Chunk(open, runsTogether) {
		if c.full {
			break
		}
		all, err := s.statusOf(ctx, part, workers)
		if err != nil {
			return true, err
		}
		for _, st := range all {
			if err := c.add(st); err != nil {
				return true, err
			}
		}
	}
	return true, nil
}

// unindexedPage is runsPage without the index of ended runs: it reads the manifests of all.
func (s *Service) unindexedPage(ctx context.Context, q runsQuery, workers []status.WorkerStatus) (
	RunsPage, []status.Status, error) {
	all, err := s.allRuns(ctx, status.Page{}, workers)
	if err != nil {
		return RunsPage{}, nil, err
	}
	slices.SortStableFunc(all.Runs, func(a, b status.Status) int { // open runs are the newest first already
		switch {
		case a.Phase.Ended() && b.Phase.Ended():
			return b.Ended().Compare(a.Ended())
		case a.Phase.Ended():
			return 1
		case b.Phase.Ended():
			return -1
		}
		return 0
	})
	ended := 0
	for _, r := range all.Runs {
		if r.Phase.Ended() {
			ended++
		}
	}
	if q.after != "" {
		i := slices.IndexFunc(all.Runs, func(r status.Status) bool { return r.Run == q.after })
		if i < 0 {
			return RunsPage{}, nil, fault.New(fault.NotFound, "there is no run %s", q.after)
		}
		all.Runs = all.Runs[i+1:]
	}
	c := &runCollector{runsQuery: q, raw: map[identity.RunID]json.RawMessage{}}
	for _, r := range all.Runs {
		if err := c.add(r); err != nil {
			return RunsPage{}, nil, err
		}
	}
	p := c.page(c.full)
	p.Ended = ended
	if q.after == "" {
		left := 0
		for _, r := range all.Runs {
			if _, shown := c.raw[r.Run]; !shown && r.Phase.Ended() {
				left++
			}
		}
		p.More = &left
	}
	return p, c.runs, nil
}

// maxWorker bounds a worker in a list, in bytes: one that holds many shards names some of them.
const maxWorker = 4 << 10

func (s *Service) getWorkers(r *http.Request) (int, any, error) {
	workers, err := s.Workers(r.Context())
	if err != nil {
		return 0, nil, err
	}
	shown, err := fitting(workers, pageBytes, maxWorker)
	return http.StatusOK, struct {
		Workers []json.RawMessage `json:"workers"`
		More    int               `json:"more"`
	}{shown, len(workers) - len(shown)}, err
}

// OverviewPage is the state of an installation, as GET /v1/overview answers it: the first page of
// its runs, and as many workers and uploads as fit.
type OverviewPage struct {
	RunsPage
	Workers     []json.RawMessage    `json:"workers"` // status.WorkerStatus, the living first
	MoreWorkers int                  `json:"more_workers"`
	Queues      []status.QueueStatus `json:"queues"` // by name
	Uploads     []json.RawMessage    `json:"uploads"`
	MoreUploads int                  `json:"more_uploads"`
}

// Parts of an overview, in bytes.
const (
	overviewRuns    = 28 << 10
	overviewWorkers = 16 << 10
	overviewUploads = 8 << 10
	maxQueues       = 64
)

func (s *Service) getOverview(r *http.Request) (int, any, error) {
	ctx := r.Context()
	q, err := runsQueryOf(r, overviewRuns)
	if err != nil {
		return 0, nil, err
	}
	workers, err := s.reader.Workers(ctx)
	if err != nil {
		return 0, nil, err
	}
	var o OverviewPage
	var runs []status.Status
	if o.RunsPage, runs, err = s.runsPage(ctx, q, workers); err != nil {
		return 0, nil, err
	}
	if o.Workers, err = fitting(workers, overviewWorkers, maxWorker); err != nil {
		return 0, nil, err
	}
	o.MoreWorkers = len(workers) - len(o.Workers)
	if o.Queues, err = s.reader.Queues(ctx, Overview{Runs: runs, Workers: workers}.pools()); err != nil {
		return 0, nil, err
	}
	o.Queues = o.Queues[:min(len(o.Queues), maxQueues)]
	uploads, err := s.uploads(ctx, runs)
	if err != nil {
		return 0, nil, err
	}
	o.Uploads, err = fitting(uploads, overviewUploads, maxStatus)
	o.MoreUploads = len(uploads) - len(o.Uploads)
	return http.StatusOK, o, err
}
