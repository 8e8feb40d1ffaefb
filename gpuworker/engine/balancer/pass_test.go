package balancer_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"rollout/gpuworker/engine"
	"rollout/shared/fault"
)

// Pass answers as Answer does: with the server's name, in one piece.
func (s *fake) Pass(ctx context.Context, r engine.RawRequest) (engine.RawAnswer, error) {
	a, err := s.Answer(ctx, engine.Request{Body: r.Body}, func() {})
	status, text := http.StatusOK, a.Text
	var server *engine.ServerError
	switch {
	case fault.Is(err, fault.Throttled):
		status, text = http.StatusTooManyRequests, "full"
	case errors.As(err, &server) && fault.Is(err, fault.Corrupt):
		status, text = http.StatusInternalServerError, "failed"
	case err != nil:
		return engine.RawAnswer{}, err
	}
	return engine.RawAnswer{Status: status, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(text))}, nil
}

// pass passes a request and returns the status, the text and the name of the server.
func (f *fixture) pass(text string, avoid ...string) (status int, answer, server string, err error) {
	a, err := f.balancer.Pass(f.t.Context(), engine.RawRequest{Path: "chat/completions", Body: []byte(text), Avoid: avoid})
	if err != nil {
		return 0, "", "", err
	}
	b, err := io.ReadAll(a.Body)
	return a.Status, string(b) + a.Header.Get("X-Should-Retry"), a.Server, errors.Join(err, a.Body.Close())
}

// A request goes to another server if one refuses connections or is full, and to a server to
// avoid only if there is no other.
func TestPassedRequestGoesToAServerThatTakesIt(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(f *fixture)
		avoid  []string
		status int
		server string // "" is any
	}{
		"all work":          {func(*fixture) {}, nil, 200, ""},
		"one is down":       {func(f *fixture) { f.servers[0].crash() }, nil, 200, "b"},
		"one is full":       {func(f *fixture) { f.servers[0].full = time.Second }, nil, 200, "b"},
		"one is avoided":    {func(*fixture) {}, []string{"a"}, 200, "b"},
		"both are avoided":  {func(*fixture) {}, []string{"a", "b"}, 200, ""},
		"the other is down": {func(f *fixture) { f.servers[1].crash() }, []string{"a"}, 200, "a"},
		"both are full": {func(f *fixture) {
			f.servers[0].full, f.servers[1].full = time.Second, time.Second
		}, nil, 429, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, 2, func(f *fixture) {
				c.change(f)
				for range 4 {
					status, text, server, err := f.pass("x", c.avoid...)
					if err != nil || status != c.status || c.server != "" && server != c.server {
						t.Errorf("%d %q of %s, %v; want %d of %s", status, text, server, err, c.status, c.server)
					}
				}
			})
		})
	}
}

// A server that dies while it has a passed request is set aside, and no other gets that
// request. If only the connection broke, another does.
func TestPassedRequestIsNotRepeatedIfItsServerDied(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		breaks func(s *fake)
		died   bool
	}{
		"it dies":                  {func(s *fake) { s.crash() }, true},
		"it fails for all":         {func(s *fake) { s.set(func() { s.fails = true }); s.breakConnections() }, true},
		"its connections break":    {func(s *fake) { s.breakConnections() }, false},
		"it is started again soon": {func(s *fake) { s.crash(); s.start() }, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, 2, func(f *fixture) {
				for range 4 {
					if _, err := f.ask("before"); err != nil {
						t.Fatal(err)
					}
				}
				f.servers[0].set(func() { f.servers[0].takes = time.Minute })
				got := make(chan error, 1)
				go func() {
					_, _, _, err := f.pass("x", "b")
					got <- err
				}()
				synctest.Wait()
				f.servers[0].set(func() { f.servers[0].takes = 0 })
				c.breaks(f.servers[0])
				err := <-got
				if died := crashOf(err) != nil; died != c.died || (err != nil) != c.died {
					t.Errorf("the request ends with %v", err)
				}
				if _, requests := f.servers[1].questions(); (requests > 2) == c.died {
					t.Errorf("the other server got %d requests", requests)
				}
			})
		})
	}
}

// A request that a server had stays one, although no other could be reached afterwards.
func TestPassedRequestThatAServerHadIsSaidToBeReceived(t *testing.T) {
	t.Parallel()
	bubble(t, 2, func(f *fixture) {
		f.servers[1].crash()
		f.servers[0].set(func() { f.servers[0].takes = time.Minute })
		got := make(chan error, 1)
		go func() {
			_, _, _, err := f.pass("x", "b")
			got <- err
		}()
		synctest.Wait()
		f.servers[0].set(func() { f.servers[0].takes = 0 })
		f.servers[0].breakConnections()
		var of *engine.ServerError
		if err := <-got; !errors.As(err, &of) || !of.Received || crashOf(err) != nil {
			t.Errorf("the request ends with %v", err)
		}
	})
}

// An error of a server that works is passed on, and does not set it aside. A server that
// fails for all is.
func TestErrorsOfPassedRequestsAreCheckedByAProbe(t *testing.T) {
	t.Parallel()
	bubble(t, 1, func(f *fixture) {
		if status, text, _, err := f.pass("bad"); err != nil || status != 500 || text != "failed" {
			t.Errorf("%d %q, %v", status, text, err)
		}
		if _, err := f.ask("of a run"); err != nil {
			t.Errorf("the server was set aside: %v", err)
		}
		f.servers[0].set(func() { f.servers[0].fails = true })
		if status, text, _, err := f.pass("x"); err != nil || status != 500 || text != "failedfalse" {
			t.Errorf("%d %q, %v", status, text, err)
		}
		if _, _, _, err := f.pass("x"); !fault.Is(err, fault.Unavailable) || crashOf(err) != nil {
			t.Errorf("a server that is set aside gets a request: %v", err)
		}
	})
}
