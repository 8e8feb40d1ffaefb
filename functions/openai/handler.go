package openai

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"rollout/functions/api"
	"rollout/shared/config"
	"rollout/shared/core/identity"
	"rollout/shared/fault"
	"rollout/shared/host"
	"rollout/shared/listen"
)

// Server answers the requests of OpenAI's clients. It is safe for concurrent use.
type Server struct {
	host.Ports
	runs   *api.Service
	models []string
	// patience bounds how long a cancellation waits for the run to be made.
	patience time.Duration
	redirect SignGet // nil: contents are streamed
	chunked  bool    // see Chunked

	mu        sync.Mutex
	announced map[identity.RunID]time.Time // when batches without a run were announced again
}

// New returns the server of a deployment, whose runs the API shows and stops.
func New(p host.Ports, d config.Deployment, runs *api.Service) *Server {
	s := &Server{Ports: p.WithSource("api"), runs: runs, patience: 10 * time.Second,
		announced: map[identity.RunID]time.Time{}}
	for _, pool := range d.InferPools() {
		if pool.Model != "" && !slices.Contains(s.models, pool.Model) {
			s.models = append(s.models, pool.Model)
		}
	}
	slices.Sort(s.models)
	return s
}

// SignGet returns an address at which anyone can read a version of an object for that time.
type SignGet func(ctx context.Context, key, version string, lasts time.Duration) (string, error)

// addressLasts is how long a client can begin to read a file at the address that it got.
const addressLasts = 15 * time.Minute

// Redirecting returns the server, which answers a request for the content of a file with an
// address of the bucket: a function can't stream large answers.
func (s *Server) Redirecting(to SignGet) *Server {
	s.redirect = to
	return s
}

// Chunked returns the server, which does not say how long the content of a file is: Cloud Run takes
// an answer of any length only without that.
func (s *Server) Chunked() *Server {
	s.chunked = true
	return s
}

// Mount returns where the API of a deployment serves it.
func (s *Server) Mount() api.Mount {
	return api.Mount{Paths: []string{"/v1/files", "/v1/uploads", "/v1/batches", "/v1/models"}, Handler: s.Handler()}
}

// Handler answers:
//
//	GET, POST   /v1/files               list, upload (multipart, of any length)
//	GET, DELETE /v1/files/{id}          FileObject
//	GET         /v1/files/{id}/content  its bytes
//	POST        /v1/uploads             Upload: a file that comes in parts
//	POST        /v1/uploads/{id}/parts, /v1/uploads/{id}/complete, /v1/uploads/{id}/cancel
//	GET, POST   /v1/batches             list, create
//	GET         /v1/batches/{id}        Batch
//	POST        /v1/batches/{id}/cancel Batch
//	GET         /v1/models, /v1/models/{id}
//
// Whoever calls it authenticates requests. Uploads and contents are bounded by how long the
// client may be silent; all else is bounded as the other requests of an API.
func (s *Server) Handler() http.Handler {
	bounded, streams := http.NewServeMux(), http.NewServeMux()
	bounded.HandleFunc("GET /v1/files", s.answer(s.listFiles))
	bounded.HandleFunc("GET /v1/files/{id}", s.answer(s.getFile))
	bounded.HandleFunc("DELETE /v1/files/{id}", s.answer(s.deleteFile))
	bounded.HandleFunc("GET /v1/batches", s.answer(s.listBatches))
	bounded.HandleFunc("POST /v1/batches", s.answer(s.createBatch))
	bounded.HandleFunc("GET /v1/batches/{id}", s.answer(s.getBatch))
	bounded.HandleFunc("POST /v1/batches/{id}/cancel", s.answer(s.cancelBatch))
	bounded.HandleFunc("POST /v1/uploads", s.answer(s.createUpload))
	bounded.HandleFunc("POST /v1/uploads/{id}/cancel", s.answer(s.cancelUpload))
	bounded.HandleFunc("GET /v1/models", s.answer(s.listModels))
	bounded.HandleFunc("GET /v1/models/{id...}", s.answer(s.getModel))
	bounded.HandleFunc("/", s.answer(func(r *http.Request) (any, error) {
		return nil, fault.New(fault.NotFound, "there is nothing at %s %s", r.Method, r.URL.Path)
	}))
	streams.HandleFunc("POST /v1/files", func(w http.ResponseWriter, r *http.Request) {
		s.answer(func(r *http.Request) (any, error) { return s.upload(w, r) })(w, r)
	})
	streams.HandleFunc("POST /v1/uploads/{id}/parts", func(w http.ResponseWriter, r *http.Request) {
		s.answer(func(r *http.Request) (any, error) { return s.addPart(w, r) })(w, r)
	})
	streams.HandleFunc("POST /v1/uploads/{id}/complete", func(w http.ResponseWriter, r *http.Request) {
		s.answer(func(r *http.Request) (any, error) { return s.completeUpload(w, r) })(w, r)
	})
	streams.HandleFunc("GET /v1/files/{id}/content", s.content)
	streams.Handle("/", listen.DefaultBounds().Within(bounded))
	return streams
}

// answer is a handler of what f returns, or of its error.
func (s *Server) answer(f func(*http.Request) (any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		body, err := f(r)
		if err != nil {
			s.refuse(w, r, err)
			return
		}
		listen.WriteJSON(w, http.StatusOK, body)
	}
}

// refuse answers with an error in OpenAI's form. Clients repeat requests after a conflict, a
// timeout and 5xx, unless x-should-retry says no.
func (s *Server) refuse(w http.ResponseWriter, r *http.Request, err error) {
	code, kind, passes := http.StatusInternalServerError, "server_error", true
	switch fault.KindOf(err) {
	case fault.Invalid, fault.Corrupt:
		code, kind, passes = http.StatusBadRequest, "invalid_request_error", false
	case fault.NotFound:
		code, kind, passes = http.StatusNotFound, "invalid_request_error", false
	case fault.Conflict:
		code, kind, passes = http.StatusConflict, "invalid_request_error", false
	case fault.Denied:
		code, kind, passes = http.StatusForbidden, "invalid_request_error", false
	case fault.Exhausted:
		code, kind, passes = http.StatusRequestEntityTooLarge, "invalid_request_error", false
	case fault.Throttled:
		code, kind = http.StatusTooManyRequests, "rate_limit_error"
	case fault.Unavailable, fault.Canceled:
		code = http.StatusServiceUnavailable
	}
	var asked *paramError
	param := any(nil)
	if errors.As(err, &asked) {
		param = asked.param
	}
	if !passes {
		w.Header().Set("X-Should-Retry", "false")
	}
	if code >= http.StatusInternalServerError && r.Context().Err() == nil {
		s.Log.WarnContext(r.Context(), "a request failed", "method", r.Method, "path", r.URL.Path, "error", err)
	}
	listen.WriteJSON(w, code, map[string]any{"error": map[string]any{
		"message": err.Error(), "type": kind, "param": param, "code": fault.KindOf(err).String()}})
}

// paramError is an Invalid error about a parameter of the request.
type paramError struct {
	param string
	err   error
}

func (e *paramError) Error() string { return e.err.Error() }
func (e *paramError) Unwrap() error { return e.err }

// badParam returns an Invalid error about a parameter.
func badParam(param, format string, args ...any) error {
	return &paramError{param, fault.New(fault.Invalid, param+": "+format, args...)}
}

// retries is how often the client has repeated the request before.
func retries(r *http.Request) bool {
	n := strings.TrimSpace(r.Header.Get("X-Stainless-Retry-Count"))
	return n != "" && n != "0"
}
