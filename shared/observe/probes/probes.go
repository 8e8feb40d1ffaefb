// Package probes serves the liveness and readiness probes and the metrics of a process
// over HTTP.
//
//	GET /healthz   200 if the process is alive, else 503: restart it
//	GET /readyz    200 if the process is ready, else 503: wait
//	GET /metrics   the metrics in Prometheus' text format, if the process has them
//
// The probes return {"alive":true,"ready":false,"why":["…"]}. Their responses contain no
// private data and need no token; metrics need one.
package probes

import (
	"context"
	"net/http"
	"time"

	"rollout/shared/listen"
	"rollout/shared/observe"
)

// Probes are the probes of a process.
type Probes struct {
	Ping     func(context.Context) error // fails if the document store cannot be reached
	Liveness *observe.Liveness           // of the workers; nil without workers
	Metrics  http.Handler                // nil without metrics
}

// Paths are the paths of Handler. PublicPaths are those of them that need no token.
var (
	Paths       = []string{"/healthz", "/readyz", "/metrics"}
	PublicPaths = []string{"/healthz", "/readyz"}
)

// pingTime is the time limit of Ping.
const pingTime = 5 * time.Second

// Report is the status of a process.
type Report struct {
	Alive bool     `json:"alive"`
	Ready bool     `json:"ready"`
	Why   []string `json:"why"` // why the process is not ready; [] if it is ready
}

// Report checks the workers and the document store.
func (v Probes) Report(ctx context.Context) Report {
	alive, why := v.Liveness.Check()
	ctx, cancel := context.WithTimeout(ctx, pingTime)
	defer cancel()
	if err := v.Ping(ctx); err != nil { // its text is private, because it may name files
		alive = false
		why = append(why, "the document store does not answer")
	}
	if why == nil {
		why = []string{}
	}
	return Report{Alive: alive, Ready: len(why) == 0, Why: why}
}

// Handler serves Paths.
func (v Probes) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/healthz", v.answer(func(r Report) bool { return r.Alive }))
	mux.HandleFunc("/readyz", v.answer(func(r Report) bool { return r.Ready }))
	if v.Metrics != nil {
		mux.HandleFunc("/metrics", readOnly(v.Metrics.ServeHTTP))
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		listen.WriteError(w, http.StatusNotFound, "not_found", "there is nothing at "+r.URL.Path)
	})
	return mux
}

// answer returns a handler of a probe: 200 if passes returns true for the report, else 503.
func (v Probes) answer(passes func(Report) bool) http.HandlerFunc {
	return readOnly(func(w http.ResponseWriter, r *http.Request) {
		report := v.Report(r.Context())
		code := http.StatusOK
		if !passes(report) {
			code = http.StatusServiceUnavailable
		}
		listen.WriteJSON(w, code, report)
	})
}

// readOnly refuses all methods but GET and HEAD.
func readOnly(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			w.Header().Set("Allow", http.MethodGet)
			listen.WriteError(w, http.StatusMethodNotAllowed, "invalid", r.Method+" is not possible here: use GET")
			return
		}
		next(w, r)
	}
}
