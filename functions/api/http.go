package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sort"
	"strconv"
	"strings"
	"time"

	"rollout/functions/status"
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
//	GET  /v1/runs?limit=&since=       {"runs":[Status…],"more":n}: open runs and the ended ones that ended last
//	                                  (100, or limit), or since then; newest first; n more have ended
//	POST /v1/runs                     {"key":"prompts/x.jsonl"} → 202, Submission
//	GET  /v1/runs/{id}                Status
//	GET  /v1/runs/{id}/explain?item=  Explanation, of the run and, if given, an item
//	POST /v1/runs/{id}/pause          {"reason":"…"}, optional → 202, Status
//	POST /v1/runs/{id}/resume, stop   likewise
//	POST /v1/runs/{id}/retry          {"only":["failed"]}, optional → 202, Retry
//	GET  /v1/workers                  {"workers":[WorkerStatus…]}
//	GET  /v1/overview?limit=&since=   Overview: runs, workers, queues, uploads
//
// Errors are {"error":{"kind":"not_found","message":"…"}}. What others answer, at the paths of
// their mounts, they bound themselves.
func (s *Service) Handler(token secret.Value, v probes.Probes, others ...Mount) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/", listen.DefaultBounds().Within(s.endpoints(v)))
	for _, m := range others {
		for _, path := range m.Paths {
			mux.Handle(path, m.Handler)
			mux.Handle(path+"/", m.Handler)
		}
	}
	return listen.Bounds{}.Guard(token, mux, probes.PublicPaths...)
}

// Mount is a further API behind the same guard.
type Mount struct {
	Paths   []string // and all below them
	Handler http.Handler
}

// AuthenticatedHandler is Handler behind something that authenticates requests,
// such as a cloud. It answers only requests for which admitted returns true.
func (s *Service) AuthenticatedHandler(admitted func(*http.Request) bool, v probes.Probes) http.Handler {
	return listen.DefaultBounds().GuardFunc(admitted, s.endpoints(v))
}

func (s *Service) endpoints(v probes.Probes) http.Handler {
	return s.throttle.limit(s.mux(v))
}

func (s *Service) mux(v probes.Probes) http.Handler {
	mux := http.NewServeMux()
	for _, path := range probes.Paths {
		mux.Handle(path, v.Handler())
	}
	mux.Handle("/v1/runs", methods{http.MethodGet: s.getRuns, http.MethodPost: s.postRun})
	mux.Handle("/v1/runs/{id}", methods{http.MethodGet: s.getRun})
	mux.Handle("/v1/runs/{id}/explain", methods{http.MethodGet: s.getExplanation})
	mux.Handle("/v1/runs/{id}/pause", methods{http.MethodPost: s.steer(s.Pause)})
	mux.Handle("/v1/runs/{id}/resume", methods{http.MethodPost: s.steer(s.Resume)})
	mux.Handle("/v1/runs/{id}/stop", methods{http.MethodPost: s.steer(s.Stop)})
	mux.Handle("/v1/runs/{id}/retry", methods{http.MethodPost: s.postRetry})
	mux.Handle("/v1/workers", methods{http.MethodGet: s.getWorkers})
	mux.Handle("/v1/overview", methods{http.MethodGet: s.getOverview})
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
	listen.WriteJSON(w, code, body)
}

func (s *Service) getRuns(r *http.Request) (int, any, error) {
	page, err := pageOf(r)
	if err != nil {
		return 0, nil, err
	}
	runs, err := s.Runs(r.Context(), page)
	return http.StatusOK, runs, err
}

// endedRuns is how many ended runs a page has, unless the request says how many, up to
// maxEndedRuns.
const (
	endedRuns    = 100
	maxEndedRuns = 10_000
)

// pageOf returns which ended runs the request is for.
func pageOf(r *http.Request) (page status.Page, err error) {
	q := r.URL.Query()
	page.Limit = endedRuns
	if v := q.Get("limit"); v != "" {
		if page.Limit, err = strconv.Atoi(v); err != nil || page.Limit < 1 || page.Limit > maxEndedRuns {
			return page, fault.New(fault.Invalid, "limit=%.20s must be a number of ended runs from 1 to %d", v, maxEndedRuns)
		}
	}
	if v := q.Get("since"); v != "" {
		if page.Since, err = time.Parse(time.RFC3339, v); err != nil {
			return page, fault.New(fault.Invalid, "since=%.40s must be a time like 2026-03-01T12:00:00Z", v)
		}
	}
	return page, nil
}

func (s *Service) getRun(r *http.Request) (int, any, error) {
	st, err := s.Show(r.Context(), identity.RunID(r.PathValue("id")))
	return http.StatusOK, st, err
}

func (s *Service) getWorkers(r *http.Request) (int, any, error) {
	workers, err := s.Workers(r.Context())
	return http.StatusOK, map[string][]status.WorkerStatus{"workers": workers}, err
}

func (s *Service) getExplanation(r *http.Request) (int, any, error) {
	e, err := s.Explain(r.Context(), identity.RunID(r.PathValue("id")), r.URL.Query().Get("item"))
	return http.StatusOK, e, err
}

func (s *Service) getOverview(r *http.Request) (int, any, error) {
	page, err := pageOf(r)
	if err != nil {
		return 0, nil, err
	}
	o, err := s.Overview(r.Context(), page)
	return http.StatusOK, o, err
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
		Set           []string `json:"set"`
	}
	if err := read(r, &body); err != nil {
		return 0, nil, err
	}
	sel := record.Selection{Only: body.Only, Finish: body.FinishReasons}
	if len(sel.Only)+len(sel.Finish) == 0 {
		sel.Only = []string{record.SelectFailed}
	}
	c, err := s.Retry(r.Context(), identity.RunID(r.PathValue("id")), sel, body.Set)
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
