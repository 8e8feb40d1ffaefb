// Package serve is the OpenAI-compatible HTTP server of `rollout serve`, for the tiny
// engine. It answers the requests of OpenAI's clients, of vLLM's users and of
// rollout's workers, in vLLM's formats.
//
// When a client disconnects, its requests are canceled. A client that reads slowly
// delays only its own answers. The package leaves generation to the engine, never
// opens a file or a connection, and never logs a prompt or an answer.
package serve

import (
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"rollout/gpuworker/engine/tiny"
	"rollout/shared/clock"
	"rollout/shared/listen"
)

// Bounds returns the limits of requests to a Server. Answers have no time limit, but
// a client must read each part of an answer within writeTimeout.
func Bounds() listen.Bounds {
	return listen.Bounds{MaxBodyBytes: 1 << 20, ReadTimeout: 30 * time.Second, ShutdownTimeout: 15 * time.Second}
}

// writeTimeout is the time within which a client must read what it is sent.
const writeTimeout = 30 * time.Second

// PublicPaths returns the paths that need no token.
func PublicPaths() []string { return []string{"/health", "/ping"} }

// Config is a Server's configuration.
type Config struct {
	Engine  *tiny.Engine
	Version string
	Clock   clock.Clock
	Log     *slog.Logger
	Rand    func() uint64 // random numbers: seeds of requests without a seed, and ids of answers
}

// Server is an http.Handler. It is safe for concurrent use.
type Server struct {
	cfg     Config
	mux     *http.ServeMux
	start   time.Time
	metrics *metrics
}

// New returns a Server.
func New(cfg Config) *Server {
	s := &Server{cfg: cfg, mux: http.NewServeMux(), start: cfg.Clock.Now()}
	s.metrics = newMetrics(cfg.Engine, s.start)
	s.on("POST", "/v1/completions", func(w http.ResponseWriter, r *http.Request) { s.complete(w, r, false) })
	s.on("POST", "/v1/chat/completions", func(w http.ResponseWriter, r *http.Request) { s.complete(w, r, true) })
	s.on("GET", "/v1/models", s.models)
	s.on("GET", "/v1/models/{name...}", s.model)
	s.on("POST", "/tokenize", s.tokenize)
	s.on("POST", "/detokenize", s.detokenize)
	s.on("GET", "/health", s.health)
	s.on("GET", "/ping", s.health)
	s.on("GET", "/version", s.version)
	s.on("GET", "/metrics", promhttp.HandlerFor(s.metrics.registry, promhttp.HandlerOpts{}).ServeHTTP)
	s.mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		write(w, http.StatusNotFound, []byte(`{"detail":"Not Found"}`))
	})
	return s
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.mux.ServeHTTP(w, r) }

// on registers the handler of a path. Requests with another method are answered with
// 405.
func (s *Server) on(method, path string, h http.HandlerFunc) {
	s.mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
		if r.Method != method && !(method == http.MethodGet && r.Method == http.MethodHead) {
			w.Header().Set("Allow", method)
			write(w, http.StatusMethodNotAllowed, []byte(`{"detail":"Method Not Allowed"}`))
			return
		}
		h(w, r)
	})
}

// write answers with JSON.
func write(w http.ResponseWriter, status int, body []byte) {
	// The error is ignored: some writers of tests support no deadline.
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(writeTimeout))
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	_, _ = w.Write(body) // ignored: the client has disconnected
}

func (s *Server) health(w http.ResponseWriter, r *http.Request) {
	if _, err := s.cfg.Engine.Ready(r.Context()); err != nil {
		writeFault(w, err)
		return
	}
	w.WriteHeader(http.StatusOK)
}

func (s *Server) version(w http.ResponseWriter, _ *http.Request) {
	write(w, http.StatusOK, append(quote([]byte(`{"version":`), s.cfg.Version), '}'))
}

func (s *Server) models(w http.ResponseWriter, _ *http.Request) {
	write(w, http.StatusOK, append(s.describe([]byte(`{"object":"list","data":[`)), "]}"...))
}

func (s *Server) model(w http.ResponseWriter, r *http.Request) {
	if err := s.checkModel(r.PathValue("name")); err != nil {
		writeFault(w, err)
		return
	}
	write(w, http.StatusOK, s.describe(nil))
}

// describe appends the model's entry in a list of models.
func (s *Server) describe(out []byte) []byte {
	e := s.cfg.Engine
	out = quote(append(out, `{"id":`...), e.Name())
	out = fmt.Appendf(out, `,"object":"model","created":%d,"owned_by":"rollout","root":`, s.start.Unix())
	return fmt.Appendf(quote(out, e.Name()), `,"parent":null,"max_model_len":%d}`, e.Context())
}

// checkModel returns an error if a request is for another model. An empty name is the
// served model.
func (s *Server) checkModel(name string) error {
	if name == "" || name == s.cfg.Engine.Name() {
		return nil
	}
	err := fmt.Errorf("the model `%.256s` does not exist", name)
	return &problem{status: http.StatusNotFound, kind: "NotFoundError", param: "model", err: err}
}
