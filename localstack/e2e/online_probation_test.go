package e2e

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"rollout/localstack/scenarios"
	"rollout/shared/core/run"
)

// mortalServer is an inference server that dies of requests with "<die>" and is started again at its
// address. It dies of the first one at once, and keeps the others for a moment, in which it looks
// whether an online request comes.
type mortalServer struct {
	t       *testing.T
	address string

	mu       sync.Mutex
	server   *http.Server
	deaths   int
	suspects int // requests with "<die>" that are held now
	online   int // online requests that are at the server now
	beside   int // online requests that were at the server together with one that was held
	answered int // online requests
}

func serveMortal(t *testing.T) *mortalServer {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &mortalServer{t: t, address: l.Addr().String()}
	s.serve(l)
	t.Cleanup(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		_ = s.server.Close() // it is not needed any more
	})
	return s
}

// serve starts the server.
func (s *mortalServer) serve(l net.Listener) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.server = &http.Server{Handler: s, ReadHeaderTimeout: time.Minute}
	go func(h *http.Server) { _ = h.Serve(l) }(s.server) // until it dies
}

// die breaks all connections, and starts the server again.
func (s *mortalServer) die() {
	s.mu.Lock()
	s.deaths++
	dead := s.server
	s.mu.Unlock()
	_ = dead.Close() // it breaks what is at the server
	took(500 * time.Millisecond)
	scenarios.Eventually(s.t, "the server's address is free", func() bool {
		l, err := net.Listen("tcp", s.address)
		if err == nil {
			s.serve(l)
		}
		return err == nil
	})
}

// took lasts as long as something takes in a server: an answer, or a start.
func took(d time.Duration) { <-time.After(d) }

// ServeHTTP implements http.Handler.
func (s *mortalServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch {
	case r.URL.Path == "/v1/models":
		_, _ = io.WriteString(w, `{"object":"list","data":[{"id":"fake","object":"model"}]}`)
		return
	case r.Method != http.MethodPost:
		return
	}
	b, _ := io.ReadAll(r.Body) // of a connection that may break
	switch body := string(b); {
	case strings.Contains(body, "<die>"):
		s.poison()
		return
	case strings.Contains(body, "online"):
		s.count(1)
		defer s.count(-1)
	}
	took(5 * time.Millisecond)
	w.Header().Set("Content-Type", "application/json")
	_, _ = io.WriteString(w, wholeReply)
}

// count counts an online request that comes or goes.
func (s *mortalServer) count(by int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.online += by
	switch {
	case by < 0:
		s.answered++
	case s.suspects > 0:
		s.beside++
	}
}

// poison is what a request with "<die>" does. It ends when the server is there again.
func (s *mortalServer) poison() {
	s.mu.Lock()
	first := s.deaths == 0
	if !first {
		s.suspects++
		s.beside += s.online
	}
	s.mu.Unlock()
	if !first {
		took(300 * time.Millisecond) // while clients ask
	}
	s.die()
	s.mu.Lock()
	defer s.mu.Unlock()
	if !first {
		s.suspects--
	}
}

// Clients ask without a pause while a batch with a prompt that crashes the server is answered. No
// online request is at the server while it is asked about suspects, so that none shares a crash with
// them, and nobody but the prompt is blamed.
func TestOnlineRequestsAreNotBesideSuspects(t *testing.T) {
	t.Parallel()
	for name, workers := range map[string]int{"one worker": 0, "two workers at the server": 2} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := serveMortal(t)
			i := install(t, "http://"+s.address, workers, patientOnline+"[worker]\nin_flight = 8\n")
			ended := make(chan struct{})
			var clients sync.WaitGroup
			var mu sync.Mutex
			codes := map[int]int{}
			for n := range 3 {
				clients.Go(func() {
					for {
						select {
						case <-ended:
							return
						default:
						}
						code, _, _ := i.answerTo("/v1/chat/completions", chat(fmt.Sprint(n), false))
						mu.Lock()
						codes[code]++
						mu.Unlock()
					}
				})
			}
			id := i.submit(write(t, t.TempDir()+"/poisoned.jsonl", poisonedPrompts(200, 90)))
			end := i.awaitEnd(id)
			close(ended)
			clients.Wait()
			o := i.outcome(id)
			if end.Phase != run.CompletedWithErrors || o.Summary.Completed != 199 || o.Summary.FailedByClass["poison"] != 1 {
				t.Errorf("the run ended as %s (%s) with %d answers and %v", end.Phase, end.Message, o.Summary.Completed,
					o.Summary.FailedByClass)
			}
			s.mu.Lock()
			defer s.mu.Unlock()
			t.Logf("%d deaths, %d online requests, answers %v", s.deaths, s.answered, codes)
			if s.beside > 0 || s.deaths < 3 {
				t.Errorf("%d online requests were beside suspects in %d deaths", s.beside, s.deaths)
			}
			if codes[http.StatusOK] == 0 {
				t.Errorf("the clients got %v", codes)
			}
		})
	}
}
