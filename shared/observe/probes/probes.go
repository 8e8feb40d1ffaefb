// Package vitals answers over HTTP whether a process lives and can work, and
// what it counted.
//
//	GET /healthz   200 if it lives, else 503: start it again
//	GET /readyz    200 if it can work, else 503: leave it alone
//	GET /metrics   in Prometheus' text format, if the process counts
//
// Both of the former answer {"alive":true,"ready":false,"why":["…"]}. What
// they say is fit for anybody; metrics are for who may ask.
package probes

import (
	"context"
	"net/http"
	"time"

	"rollout/shared/listen"
	"rollout/shared/observe"
)

// Probes are a process's.
type Probes struct {
	Ping     func(context.Context) error // whether its documents can be reached
	Liveness *observe.Liveness           // of its workers; nil if it has none
	Metrics  http.Handler                // nil if it does not count
}

// Paths are what Handler answers at; Open are those of them that need no
// token.
var (
	Paths       = []string{"/healthz", "/readyz", "/metrics"}
	PublicPaths = []string{"/healthz", "/readyz"}
)

// pingTime is how long the documents may take.
const pingTime = 5 * time.Second

// Report is how a process is.
type Report struct {
	Alive bool     `json:"alive"`
	Ready bool     `json:"ready"`
	Why   []string `json:"why"` // it is not ready; [] if it is
}

// Report looks.
func (v Probes) Report(ctx context.Context) Report {
	alive, why := v.Liveness.Check()
	ctx, cancel := context.WithTimeout(ctx, pingTime)
	defer cancel()
	if err := v.Ping(ctx); err != nil { // what it says may name files: that is for logs
		alive = false
		why = append(why, "the document store does not answer")
	}
	if why == nil {
		why = []string{}
	}
	return Report{Alive: alive, Ready: len(why) == 0, Why: why}
}

// Handler answers at Paths.
func (v Probes) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/healthz", v.answer(func(r Report) bool { return r.Alive }))
	mux.HandleFunc("/readyz", v.answer(func(r Report) bool { return r.Ready }))
	if v.Metrics != nil {
		mux.HandleFunc("/metrics", reads(v.Metrics.ServeHTTP))
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		listen.WriteError(w, http.StatusNotFound, "not_found", "there is nothing at "+r.URL.Path)
	})
	return mux
}

func (v Probes) answer(well func(Report) bool) http.HandlerFunc {
	return reads(func(w http.ResponseWriter, r *http.Request) {
		report := v.Report(r.Context())
		code := http.StatusOK
		if !well(report) {
			code = http.StatusServiceUnavailable
		}
		listen.WriteJSON(w, code, report)
	})
}

// reads refuses what is no reading.
func reads(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			w.Header().Set("Allow", http.MethodGet)
			listen.WriteError(w, http.StatusMethodNotAllowed, "invalid", r.Method+" is not possible here: use GET")
			return
		}
		next(w, r)
	}
}
