package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path"
	"slices"
	"sort"
	"strings"

	"rollout/functions/page"
	"rollout/shared/core/identity"
	"rollout/shared/fault"
	"rollout/shared/listen"
	"rollout/shared/observe/probes"
	"rollout/shared/record"
	"rollout/shared/secret"
)

// Handler serves the API. Without a token (the zero Value) it answers only
// requests that are addressed to this machine; with a token, only requests that
// carry it as a bearer token. The paths of probes.PublicPaths need no token.
//
//	GET  /healthz, /readyz, /metrics  see package probes
//	GET  /                            the live page; see package page
//	GET  /v1/session                  see listen.Sessions
//	GET  /v1/runs?limit=&since=&after=&phase=
//	                                  {"runs":[Status…],"next":…}: see RunsPage
//	POST /v1/runs                     {"key":"prompts/x.jsonl"} → 202, Submission
//	GET  /v1/runs/{id}                Status
//	GET  /v1/runs/{id}/explain?item=  Explanation, of the run and, if given, an item
//	GET  /v1/runs/{id}/history        {"start":…,"points":[HistoryPoint…]}
//	GET  /v1/runs/{id}/errors         {"classes":[FailedClass…],"finish_reasons":{…}}; see package diagnosis
//	GET  /v1/runs/{id}/items?limit=&after=&class=&finish_reason=&min_score=&max_score=&q=
//	                                  {"items":[ListedItem…],"next":…,"scanned":n,"unread":n,"of":n}
//	GET  /v1/runs/{id}/items/{index}  ItemDetail
//	GET  /v1/runs/{id}/rollout        RolloutDetail, of a rollout
//	GET  /v1/runs/{id}/training       TrainingDetail, of a training
//	GET  /v1/runs/{id}/trials?after=  TrialGrid, of a run of trials; see package diagnosis
//	POST /v1/runs/{id}/pause          {"reason":"…"}, optional → 202, Status
//	POST /v1/runs/{id}/resume, stop   likewise
//	POST /v1/runs/{id}/retry          {"only":["failed"]}, optional → 202, Retry
//	GET  /v1/workers                  {"workers":[WorkerStatus…],"more":n}: n more do not fit in
//	GET  /v1/openapi.json             these endpoints in the form of OpenAPI 3.1; needs no token
//	GET  /v1/overview?limit=&since=   OverviewPage: runs, workers, queues, uploads
//
// Errors are {"error":{"kind":"not_found","message":"…"}}. Answers have at most 64 KiB, and a weak
// ETag. What others answer, at the paths of their mounts, they bound themselves.
//
// A browser that has signed in at /v1/session sends a cookie instead of the token. Requests that
// change something are refused if they come from a page of another site.
func (s *Service) Handler(token secret.Value, v probes.Probes, others ...Mount) http.Handler {
	mux := http.NewServeMux()
	sessions := listen.NewSessions(token, s.ports.Clock)
	mux.Handle("/", listen.DefaultBounds().Within(s.endpoints(v, sessions)))
	s.mount(mux, others)
	return listen.Bounds{}.GuardSessions(sessions, mux, isPublic)
}

// mount adds what others answer, within the same throttle.
func (s *Service) mount(mux *http.ServeMux, others []Mount) {
	for _, m := range others {
		for _, path := range m.Paths {
			mux.Handle(path, s.throttle.limit(m.Handler))
			mux.Handle(path+"/", s.throttle.limit(m.Handler))
		}
	}
}

// isPublic reports whether a path needs no token.
func isPublic(path string) bool {
	return path == listen.SessionPath || path == openAPIPath || isPage(path) || slices.Contains(probes.PublicPaths, path)
}

// isPage reports whether a path is the page or one of its files, which hold no data.
func isPage(at string) bool {
	return at == "/" || strings.HasPrefix(at, page.Prefix) && path.Clean(at) == at
}

// Mount is a further API behind the same guard.
type Mount struct {
	Paths   []string // and all below them
	Handler http.Handler
}

// AuthenticatedHandler is Handler behind something that authenticates requests,
// such as a cloud. It answers only requests for which admitted returns true.
func (s *Service) AuthenticatedHandler(admitted func(*http.Request) bool, v probes.Probes,
	others ...Mount) http.Handler {
	noToken := listen.NewSessions(secret.Value{}, s.ports.Clock)
	mux := http.NewServeMux()
	mux.Handle("/", listen.DefaultBounds().Within(s.endpoints(v, noToken)))
	s.mount(mux, others)
	return listen.Bounds{}.GuardFunc(admitted, mux)
}

func (s *Service) endpoints(v probes.Probes, sessions *listen.Sessions) http.Handler {
	return s.throttle.limit(s.mux(v, sessions))
}

// routes are the endpoints that answer with JSON, by path.
func (s *Service) routes() map[string]methods {
	return map[string]methods{
		"/v1/runs":                    {http.MethodGet: s.getRuns, http.MethodPost: s.postRun},
		"/v1/runs/{id}":               {http.MethodGet: s.getRun},
		"/v1/runs/{id}/explain":       {http.MethodGet: s.getExplanation},
		"/v1/runs/{id}/history":       {http.MethodGet: s.getHistory},
		"/v1/runs/{id}/errors":        {http.MethodGet: s.getErrors},
		"/v1/runs/{id}/items":         {http.MethodGet: s.getItems},
		"/v1/runs/{id}/items/{index}": {http.MethodGet: s.getItem},
		"/v1/runs/{id}/rollout":       {http.MethodGet: s.getRollout},
		"/v1/runs/{id}/training":      {http.MethodGet: s.getTraining},
		"/v1/runs/{id}/trials":        {http.MethodGet: s.getTrials},
		"/v1/runs/{id}/trials/active": {http.MethodGet: s.getActiveTrials},
		"/v1/runs/{id}/pause":         {http.MethodPost: s.steer(s.Pause)},
		"/v1/runs/{id}/resume":        {http.MethodPost: s.steer(s.Resume)},
		"/v1/runs/{id}/stop":          {http.MethodPost: s.steer(s.Stop)},
		"/v1/runs/{id}/retry":         {http.MethodPost: s.postRetry},
		"/v1/runs/{id}/amend":         {http.MethodPost: s.postAmend},
		"/v1/workers":                 {http.MethodGet: s.getWorkers},
		openAPIPath:                   {http.MethodGet: s.getOpenAPI},
		"/v1/overview":                {http.MethodGet: s.getOverview},
	}
}

func (s *Service) mux(v probes.Probes, sessions *listen.Sessions) http.Handler {
	mux := http.NewServeMux()
	for _, path := range probes.Paths {
		mux.Handle(path, v.Handler())
	}
	for at, m := range s.routes() {
		mux.Handle(at, m)
	}
	mux.Handle(listen.SessionPath, sessions)
	live := page.Handler()
	mux.Handle("/{$}", live)
	mux.Handle(page.Prefix, live)
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		listen.WriteError(w, http.StatusNotFound, "not_found", "there is nothing at "+r.URL.Path)
	})
	return mux
}

// answer is an endpoint. It returns the status code and the value of the body.
type answer func(r *http.Request) (code int, body any, err error)

// methods are the endpoints of one path, by HTTP method. A GET also serves HEAD.
type methods map[string]answer

func (m methods) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	do, ok := m[r.Method]
	if !ok && r.Method == http.MethodHead {
		do, ok = m[http.MethodGet]
	}
	if !ok {
		var allowed []string
		for name := range m {
			allowed = append(allowed, name)
		}
		sort.Strings(allowed)
		w.Header().Set("Allow", strings.Join(allowed, ", "))
		listen.WriteError(w, http.StatusMethodNotAllowed, "invalid",
			r.Method+" is not possible here: use "+strings.Join(allowed, " or "))
		return
	}
	code, body, err := do(r)
	if err != nil {
		listen.WriteError(w, statusCode(err), fault.KindOf(err).String(), err.Error())
		return
	}
	write(w, r, code, body)
}

func (s *Service) getRun(r *http.Request) (int, any, error) {
	st, err := s.Show(r.Context(), identity.RunID(r.PathValue("id")))
	return http.StatusOK, st, err
}

func (s *Service) getExplanation(r *http.Request) (int, any, error) {
	e, err := s.Explain(r.Context(), identity.RunID(r.PathValue("id")), r.URL.Query().Get("item"))
	return http.StatusOK, e, err
}

func (s *Service) postRun(r *http.Request) (int, any, error) {
	var body struct {
		Key string `json:"key"`
	}
	if err := read(r, &body); err != nil {
		return 0, nil, err
	}
	if body.Key == "" {
		return 0, nil, fault.New(fault.Invalid, `the body has no key: send {"key":"prompts/x.jsonl"}`)
	}
	a, err := s.Submit(r.Context(), body.Key)
	return http.StatusAccepted, a, err
}

func (s *Service) postRetry(r *http.Request) (int, any, error) {
	var body struct {
		Only          []string `json:"only"`
		FinishReasons []string `json:"finish_reasons"`
		Trials        []string `json:"trials"`
		Set           []string `json:"set"`
	}
	if err := read(r, &body); err != nil {
		return 0, nil, err
	}
	id := runOf(r)
	items, err := s.SelectTrials(r.Context(), id, body.Trials)
	if err != nil {
		return 0, nil, err
	}
	sel := record.Selection{Only: body.Only, Finish: body.FinishReasons, Items: items}
	if len(sel.Only)+len(sel.Finish)+items.Len() == 0 {
		sel.Only = []string{record.SelectFailed}
	}
	c, err := s.Retry(r.Context(), id, sel, body.Set)
	return http.StatusAccepted, c, err
}

// steer returns the endpoint of Pause, Resume or Stop.
func (s *Service) steer(do func(context.Context, identity.RunID, string) error) answer {
	return func(r *http.Request) (int, any, error) {
		var body struct {
			Reason string `json:"reason"`
		}
		if err := read(r, &body); err != nil {
			return 0, nil, err
		}
		id := identity.RunID(r.PathValue("id"))
		if err := do(r.Context(), id, body.Reason); err != nil {
			return 0, nil, err
		}
		st, err := s.Show(r.Context(), id)
		return http.StatusAccepted, st, err
	}
}

// read decodes the body strictly into v. An empty body leaves v as it is.
func read(r *http.Request, v any) error {
	d := json.NewDecoder(r.Body)
	d.DisallowUnknownFields()
	err := d.Decode(v)
	if err == io.EOF {
		return nil
	}
	if err == nil && d.More() {
		err = errors.New("it goes on after the object")
	}
	var tooLong *http.MaxBytesError
	if errors.As(err, &tooLong) {
		return &fault.Error{Kind: fault.Exhausted, Err: fmt.Errorf("the body is longer than %d bytes", tooLong.Limit),
			Remedy: "upload prompts to the bucket; the body only names their key"}
	}
	if err == nil {
		return nil
	}
	return &fault.Error{Kind: fault.Invalid, Op: "read the body as JSON", Err: err,
		Remedy: "send one object, with the fields that the README names"}
}

// statusCode returns the HTTP status of an error's kind.
func statusCode(err error) int {
	switch fault.KindOf(err) {
	case fault.Invalid:
		return http.StatusBadRequest
	case fault.NotFound:
		return http.StatusNotFound
	case fault.Conflict:
		return http.StatusConflict
	case fault.Denied:
		return http.StatusForbidden
	case fault.Exhausted:
		return http.StatusRequestEntityTooLarge
	case fault.Throttled:
		return http.StatusTooManyRequests
	case fault.Unavailable, fault.Canceled:
		return http.StatusServiceUnavailable
	}
	return http.StatusInternalServerError
}
