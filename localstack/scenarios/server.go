package scenarios

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"rollout/localstack/fakellm"
)

// Server is an inference server whose behaviour may change while its address stays.
type Server struct {
	URL      string
	now      atomic.Pointer[fakellm.Server]
	requests atomic.Int64
}

// Serve starts an inference server until the test ends.
func Serve(t *testing.T, c fakellm.Config) *Server {
	t.Helper()
	s := &Server{}
	s.Mend(t, c)
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/completions") {
			s.requests.Add(1)
		}
		s.now.Load().ServeHTTP(w, r)
	}))
	t.Cleanup(func() {
		front.CloseClientConnections() // workers end later
		front.Close()
	})
	s.URL = front.URL
	return s
}

// Mend replaces the server's behaviour.
func (s *Server) Mend(t *testing.T, c fakellm.Config) {
	t.Helper()
	next, err := fakellm.New(c)
	if err != nil {
		t.Fatal(err)
	}
	s.now.Store(next)
}

// Requests is how many completions have been requested so far.
func (s *Server) Requests() int { return int(s.requests.Load()) }

// Tokens is how many tokens of prompts and answers the server has counted since its behaviour
// was last replaced.
func (s *Server) Tokens() int64 { return s.now.Load().Tokens() }
