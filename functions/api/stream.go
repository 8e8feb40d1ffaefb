package api

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
	"time"

	"rollout/functions/status"
	"rollout/shared/core/identity"
	"rollout/shared/core/run"
	"rollout/shared/fault"
	"rollout/shared/listen"
)

// Times and bounds of streams.
const (
	streamEvery  = time.Second      // between two looks at what changed
	streamAlive  = 15 * time.Second // until a comment says that the stream lives
	streamStall  = 10 * time.Second // for which a client may read nothing
	streamLasts  = 10 * time.Minute // then the browser asks again, and must still be signed in
	maxStreams   = 64
	streamedRuns = 50
)

// streams are the open streams of one process, for which it reads once. What one of them has read
// within the last second, the others take.
type streams struct {
	service *Service
	ended   <-chan struct{}
	open    chan struct{} // has one for each stream
	lasts   time.Duration // of a stream

	mu     sync.Mutex
	cached map[identity.RunID]cachedEvent // "" is the overview
}

type cachedEvent struct {
	at   time.Time
	body []byte
}

// Stream returns where browsers get what changes, as server-sent events, until ctx ends:
//
//	GET /v1/stream?run={id}
//	event: overview   streamOverview: the first runs and the workers, small
//	event: run        Status of the run that the request names
//
// An event comes when something has changed, at most once a second. A stream ends after 10 minutes:
// browsers open it again by themselves, if they are still signed in. Only a process that lives as
// long as a browser looks can serve it; elsewhere clients ask again with If-None-Match.
func (s *Service) Stream(ctx context.Context) Mount {
	return Mount{Paths: []string{"/v1/stream"}, Handler: &streams{service: s, ended: ctx.Done(),
		open: make(chan struct{}, maxStreams), lasts: streamLasts, cached: map[identity.RunID]cachedEvent{}}}
}

func (s *streams) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet {
		w.Header().Set("Allow", http.MethodGet)
		listen.WriteError(w, http.StatusMethodNotAllowed, fault.Invalid.String(), "use GET")
		return
	}
	select {
	case s.open <- struct{}{}:
		defer func() { <-s.open }()
	default:
		w.Header().Set("Retry-After", "5")
		listen.WriteError(w, http.StatusTooManyRequests, fault.Throttled.String(),
			fmt.Sprintf("%d streams are open: close a page", maxStreams))
		return
	}
	of := []identity.RunID{""}
	if id := r.URL.Query().Get("run"); id != "" {
		of = append(of, identity.RunID(id))
	}
	for _, id := range of { // errors are told before the stream begins
		if _, err := s.event(r.Context(), id); err != nil {
			listen.WriteError(w, statusCode(err), fault.KindOf(err).String(), err.Error())
			return
		}
	}
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	out := &eventWriter{w: w, conn: http.NewResponseController(w)}
	_ = out.conn.SetReadDeadline(time.Time{}) // the server's is for requests; recorders of tests have none
	if !out.write("retry: 2000\n\n") {
		return
	}
	s.follow(r.Context(), out, of)
}

// follow writes what changes until the client leaves, its time is over or the process ends.
func (s *streams) follow(ctx context.Context, out *eventWriter, of []identity.RunID) {
	tick := time.NewTicker(streamEvery)
	defer tick.Stop()
	ctx, cancel := context.WithTimeout(ctx, s.lasts)
	defer cancel()
	sent := make([][]byte, len(of))
	for {
		for i, id := range of {
			b, err := s.event(ctx, id)
			if err != nil || bytes.Equal(b, sent[i]) { // what can't be read now may be in a second
				continue
			}
			name := "overview"
			if id != "" {
				name = "run"
			}
			if !out.write(fmt.Sprintf("event: %s\ndata: %s\n\n", name, b)) {
				return
			}
			sent[i] = b
		}
		if time.Since(out.wrote) >= streamAlive && !out.write(": nothing changed\n\n") {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		case <-s.ended:
			return
		}
	}
}

// event returns the data of the overview or, for an id, of a run, as of the last second.
func (s *streams) event(ctx context.Context, id identity.RunID) ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	if c, ok := s.cached[id]; ok && now.Sub(c.at) < streamEvery {
		return c.body, nil
	}
	for other, c := range s.cached {
		if now.Sub(c.at) > streamAlive {
			delete(s.cached, other)
		}
	}
	var body any
	var err error
	if id == "" {
		body, err = s.service.streamOverview(ctx)
	} else {
		body, err = s.service.Show(ctx, id)
	}
	if err != nil {
		return nil, err
	}
	b, err := encode(body, maxAnswer)
	if err == nil {
		s.cached[id] = cachedEvent{now, b}
	}
	return b, err
}

// eventWriter writes to the client of a stream.
type eventWriter struct {
	w     http.ResponseWriter
	conn  *http.ResponseController
	wrote time.Time
}

// write writes and flushes. It returns false once the client takes nothing any more.
func (e *eventWriter) write(text string) bool {
	e.wrote = time.Now()
	_ = e.conn.SetWriteDeadline(e.wrote.Add(streamStall)) // recorders of tests have none
	_, err := e.w.Write([]byte(text))
	return err == nil && e.conn.Flush() == nil
}

// streamOverview is the data of the event overview.
type streamOverview struct {
	Runs        []json.RawMessage `json:"runs"` // streamRun, as the first page of GET /v1/runs has them
	Ended       int               `json:"ended"`
	Workers     []json.RawMessage `json:"workers"` // streamWorker
	MoreWorkers int               `json:"more_workers"`
}

type streamRun struct {
	Run        identity.RunID  `json:"run_id"`
	Name       string          `json:"name"`
	Kind       string          `json:"kind"`
	Phase      run.Phase       `json:"phase"`
	Message    string          `json:"message"`
	Items      status.Items    `json:"items"`
	Rate       *float64        `json:"rate"`
	TokenRate  *float64        `json:"token_rate"`
	ETASeconds *float64        `json:"eta_seconds"`
	CostUSD    float64         `json:"cost_usd"`
	Blocker    *status.Blocker `json:"hold_up"` // the worst; null if there is none
	EndedAt    *time.Time      `json:"ended_at"`
}

type streamWorker struct {
	Worker   string             `json:"worker_id"`
	Pool     string             `json:"pool"`
	State    string             `json:"state"`
	Alive    bool               `json:"alive"`
	Engine   status.EngineState `json:"engine"`
	InFlight int                `json:"in_flight"` // requests now
	Shards   int                `json:"shards"`
}

func (s *Service) streamOverview(ctx context.Context) (o streamOverview, err error) {
	workers, err := s.reader.Workers(ctx)
	if err != nil {
		return o, err
	}
	page, all, err := s.runsPage(ctx, runsQuery{limit: streamedRuns, bytes: streamedRuns * maxStatus}, workers)
	if err != nil {
		return o, err
	}
	o.Ended = page.Ended
	runs := make([]streamRun, len(all))
	for i, r := range all {
		runs[i] = streamRun{Run: r.Run, Name: r.Name, Kind: r.Kind, Phase: r.Phase, Message: r.Message, Items: r.Items,
			Rate: r.Rate, TokenRate: r.TokenRate, ETASeconds: r.ETASeconds, CostUSD: r.CostUSD, EndedAt: r.EndedAt}
		if len(r.Blockers) > 0 {
			runs[i].Blocker = &r.Blockers[0]
		}
	}
	if o.Runs, err = fitting(runs, overviewRuns, maxStatus); err != nil {
		return o, err
	}
	small := make([]streamWorker, len(workers))
	for i, w := range workers {
		small[i] = streamWorker{w.Worker, w.Pool, string(w.State), w.Alive, w.Engine, w.Load.InFlight, len(w.Holds)}
	}
	o.Workers, err = fitting(small, overviewWorkers, maxWorker)
	o.MoreWorkers = len(small) - len(o.Workers)
	return o, err
}
