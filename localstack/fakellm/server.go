// Package fakellm is an OpenAI-compatible inference server without a model, for
// tests, demonstrations and benchmarks: answers repeat the prompt, take a
// configured time, and fail on demand.
//
// The server is an http.Handler and serves chat completions, completions,
// models, tokenize, health and metrics as vLLM does. The text of an answer
// depends only on the request and the model, never on order or time, except
// for faults that count requests. Its latency depends on the request, the model
// and the load. The server keeps no state but counters and never opens a
// connection.
//
// Command scripts/fakellm serves it.
package fakellm

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"sync"
	"time"
)

const maxBody = 64 << 20 // bytes of a request

// Config says how the server behaves. The zero value answers at once.
type Config struct {
	Model        string        // the served model's name; "fake" if empty
	Latency      time.Duration // from a request's start to its first piece
	TokenLatency time.Duration // between pieces; with 0 all are written at once
	Spread       float64       // 0 to 1: the share by which a request's latency differs from Latency
	Tokens       int           // the least number of words of an answer; filler words are appended
	MaxRunning   int           // requests that run at once; the others wait; 0 for no limit
	Saturation   int           // requests at once from which they slow each other down; 0 for never
	Faults       Faults
	// Script, if set, answers the requests for which it returns true: it gets the body and
	// returns the text of the answer.
	Script func(body []byte) (string, bool)
	// OnRunning, if set, is called while a request counts as running, before
	// it is answered. Tests use it as a barrier.
	OnRunning func()
	// Exit ends the process for Faults.Die and DieAfter; nil is os.Exit.
	Exit func(code int)
}

// Server is the handler. It is safe for concurrent use.
type Server struct {
	cfg      Config
	mux      *http.ServeMux
	faults   []faultHandler
	slots    chan struct{} // nil for no limit
	start    time.Time
	spaced   promptCounter // white-space answers, by prompt
	frozen   chan struct{} // closed by FreezeAfter
	freezing sync.Once     // guards the close
	minute   minute
	counters
}

// New returns a server. It fails if the config is invalid.
func New(cfg Config) (*Server, error) {
	if cfg.Model == "" {
		cfg.Model = "fake"
	}
	if cfg.Exit == nil {
		cfg.Exit = os.Exit
	}
	if cfg.Spread < 0 || cfg.Spread > 1 {
		return nil, fmt.Errorf("spread %v is not between 0 and 1", cfg.Spread)
	}
	f := cfg.Faults
	if min(cfg.Latency, cfg.TokenLatency, f.RetryAfter, f.HealthDelay, f.GatewayTimeout) < 0 ||
		min(cfg.Tokens, cfg.MaxRunning, cfg.Saturation,
			f.ContextLimit, f.OverloadEvery, f.MinuteLimit, f.MinuteTokens, f.FreezeAfter, f.DieAfter, f.ErrorAfter,
			f.SpacesTimes) < 0 {
		return nil, errors.New("a time, a number of tokens, a limit or a count is negative")
	}
	s := &Server{cfg: cfg, mux: http.NewServeMux(), start: time.Now(), frozen: make(chan struct{})}
	s.faults = s.faultHandlers()
	if cfg.MaxRunning > 0 {
		s.slots = make(chan struct{}, cfg.MaxRunning)
	}
	s.mux.HandleFunc("GET /health", s.health)
	if !cfg.Faults.NoMetrics {
		s.mux.HandleFunc("GET /metrics", s.metrics)
	}
	s.mux.HandleFunc("GET /v1/models", s.models)
	s.mux.HandleFunc("POST /tokenize", s.tokenize)
	s.mux.HandleFunc("POST /v1/chat/completions", func(w http.ResponseWriter, r *http.Request) { s.complete(w, r, true) })
	if !cfg.Faults.ChatOnly {
		s.mux.HandleFunc("POST /v1/completions", func(w http.ResponseWriter, r *http.Request) { s.complete(w, r, false) })
	}
	return s, nil
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.mux.ServeHTTP(w, r) }

// Requests is how many completions have been requested.
func (s *Server) Requests() int64 { return s.requests.Load() }

// Tokens is how many tokens of prompts and answers the server has counted.
func (s *Server) Tokens() int64 { return s.promptTokens.Load() + s.generationTokens.Load() }

// PeakRunning is the highest number of requests that ran at once.
func (s *Server) PeakRunning() int64 { return s.peak.Load() }

// complete serves a chat completion or a completion.
func (s *Server) complete(w http.ResponseWriter, r *http.Request, chat bool) {
	nth := s.requests.Add(1)
	q, err := readCompletion(http.MaxBytesReader(w, r.Body, maxBody), r.ContentLength, chat)
	if err != nil {
		writeError(w, http.StatusBadRequest, "BadRequestError", err.Error())
		return
	}
	q.nth, q.servedModel = nth, s.cfg.Model
	leave := s.enter(r)
	if leave == nil {
		return // the client went away while it waited
	}
	defer leave()
	if s.cfg.Faults.GatewayTimeout > 0 {
		g := newGateway(w, r, s.cfg.Faults.GatewayTimeout)
		defer g.end()
		w, r = g, g.request
	}
	defer s.countEnd(r, q)
	for _, f := range s.faults {
		if f.matches(q) {
			f.handle(w, r, q)
			return
		}
	}
	s.stateLimits(w)
	a := s.answer(q)
	s.promptTokens.Add(int64(a.asked))
	if !s.work(r, s.latency(a.digest)) {
		return
	}
	if q.stream {
		s.writeStream(w, r, q, a)
	} else {
		s.writeWhole(w, r, q, a)
	}
}

// countEnd counts how the answer ended. A refused request is not counted.
func (s *Server) countEnd(r *http.Request, q *completion) {
	switch {
	case q.finish == "stop":
		s.stopped.Add(1)
	case q.finish == "length":
		s.cut.Add(1)
	case r.Context().Err() != nil: // the client went away
		s.aborted.Add(1)
	}
}

// tokenize serves vLLM's token count. A token is a word. It accepts the requests
// of both endpoints.
func (s *Server) tokenize(w http.ResponseWriter, r *http.Request) {
	body, err := readBody(http.MaxBytesReader(w, r.Body, maxBody), r.ContentLength)
	var q *completion
	if err == nil {
		if q, err = parseCompletion(body, true); err != nil {
			q, err = parseCompletion(body, false)
		}
	}
	if err != nil {
		writeError(w, http.StatusBadRequest, "BadRequestError", err.Error())
		return
	}
	writeJSON(w, fmt.Appendf(nil, `{"count":%d,"max_model_len":%d,"tokens":[],"token_strs":null}`, words(q.prompt),
		s.cfg.Faults.ContextLimit))
}

func (s *Server) models(w http.ResponseWriter, _ *http.Request) {
	limit := ""
	if s.cfg.Faults.ContextLimit > 0 {
		limit = fmt.Sprintf(`,"max_model_len":%d`, s.cfg.Faults.ContextLimit)
	}
	writeJSON(w, fmt.Appendf(nil, `{"object":"list","data":[{"id":%s,"object":"model","owned_by":"fakellm"%s}]}`,
		quoted(s.cfg.Model), limit))
}
