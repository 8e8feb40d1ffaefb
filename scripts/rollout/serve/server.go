// Package serve is an OpenAI-compatible HTTP server over the tiny engine: what
// OpenAI's clients, vLLM's users and rollout's own workers ask for, in vLLM's
// shapes.
//
// A client that leaves ends its requests; one that reads slowly keeps nobody
// waiting but itself. The package knows no model and draws no token. It never
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

// Bounds are what requests to a Server are held to. Answers take as long as
// they take; each piece of a stream must be read within writeTime.
func Bounds() listen.Bounds {
	return listen.Bounds{MaxBodyBytes: 1 << 20, ReadTimeout: 30 * time.Second, ShutdownTimeout: 15 * time.Second}
}

// writeTime is how long a client may take to read what it is sent.
const writeTime = 30 * time.Second

// PublicPaths are the paths that need no token.
func PublicPaths() []string { return []string{"/health", "/ping"} }

// Config sets a Server up.
type Config struct {
	Engine  *tiny.Engine
	Version string
	Clock   clock.Clock
	Log     *slog.Logger
	Rand    func() uint64 // seeds of requests without one, and names of answers
}

// Server is an http.Handler. Any number of requests run at once.
type Server struct {
	cfg     Config
	mux     *http.ServeMux
	start   time.Time
	metrics *metrics
}

// New returns a server. It cannot fail.
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

// on answers one method at a path, and refuses the others.
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
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(writeTime)) // not all writers have one
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	_, _ = w.Write(body) // a client that is gone needs no answer
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
	if err := s.served(r.PathValue("name")); err != nil {
		writeFault(w, err)
		return
	}
	write(w, http.StatusOK, s.describe(nil))
}

// describe appends the model as lists of models have it.
func (s *Server) describe(out []byte) []byte {
	e := s.cfg.Engine
	out = quote(append(out, `{"id":`...), e.Name())
	out = fmt.Appendf(out, `,"object":"model","created":%d,"owned_by":"rollout","root":`, s.start.Unix())
	return fmt.Appendf(quote(out, e.Name()), `,"parent":null,"max_model_len":%d}`, e.Context())
}

// served refuses a request for another model. None is the one that is there.
func (s *Server) served(name string) error {
	if name == "" || name == s.cfg.Engine.Name() {
		return nil
	}
	return &problem{status: http.StatusNotFound, kind: "NotFoundError", param: "model", err: fmt.Errorf("the model `%.256s` does not exist", name)}
}
