package api

import (
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"rollout/shared/cloud"
	"rollout/shared/config"
	"rollout/shared/host/hosttest"
	"rollout/shared/observe/probes"
	"rollout/shared/secret"
)

// movable is a clock that a test moves.
type movable struct {
	mu  sync.Mutex
	now time.Time
}

func (m *movable) Now() time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.now
}

func (m *movable) advance(by time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.now = m.now.Add(by)
}

// The API refuses what exceeds its buckets, which fill again as time passes. Callers
// without a token take nothing from those who have one.
func TestThrottledAPIRefusesBeyondItsBuckets(t *testing.T) {
	t.Parallel()
	now := &movable{now: time.Now()}
	p := hosttest.With(now)
	service, v := New(p, config.DefaultDeployment(), cloud.OneMachine()), probes.Probes{Ping: p.Docs.Ping}
	handler := service.Throttled().Handler(secret.NewValue("s3cret"), v)
	ask := func(path, token string) *httptest.ResponseRecorder {
		r := httptest.NewRequestWithContext(t.Context(), "GET", "https://api.example"+path, nil)
		r.Header.Set("Authorization", "Bearer "+token)
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		return w
	}
	times := func(n int, path, token string, want int) {
		t.Helper()
		for i := range n {
			if got := ask(path, token).Code; got != want {
				t.Fatalf("request %d of %s is answered with %d, want %d", i, path, got, want)
			}
		}
	}
	times(probesAtOnce, "/healthz", "", http.StatusOK)
	times(3, "/readyz", "", http.StatusTooManyRequests)
	times(100, "/v1/runs", "guess", http.StatusUnauthorized)
	times(requestsAtOnce, "/v1/runs", "s3cret", http.StatusOK)
	refused := ask("/v1/runs", "s3cret")
	if refused.Code != http.StatusTooManyRequests || refused.Header().Get("Retry-After") != "1" {
		t.Errorf("the next request is answered with %d, and may be sent again after %q s",
			refused.Code, refused.Header().Get("Retry-After"))
	}
	times(100, "/v1/runs", "s3cret", http.StatusTooManyRequests) // refusals take no tokens
	now.advance(time.Second)
	times(requestsPerSecond, "/v1/runs", "s3cret", http.StatusOK)
	times(1, "/v1/runs", "s3cret", http.StatusTooManyRequests)
	times(probesPerSecond, "/healthz", "", http.StatusOK)
	times(1, "/healthz", "", http.StatusTooManyRequests)
}

func TestAPIOfOneMachineIsNotThrottled(t *testing.T) {
	t.Parallel()
	p := hosttest.New()
	service := New(p, config.DefaultDeployment(), cloud.OneMachine())
	handler := service.Handler(secret.NewValue("s3cret"), probes.Probes{Ping: p.Docs.Ping})
	for range 3 * requestsAtOnce {
		r := httptest.NewRequestWithContext(t.Context(), "GET", "https://api.example/v1/runs", nil)
		r.Header.Set("Authorization", "Bearer s3cret")
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		if w.Code != http.StatusOK {
			t.Fatalf("answered %d", w.Code)
		}
	}
}
