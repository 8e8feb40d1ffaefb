package fakellm_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"rollout/localstack/fakellm"
)

// get returns a page of the server.
func get(t *testing.T, s http.Handler, path string) *httptest.ResponseRecorder {
	t.Helper()
	w := httptest.NewRecorder()
	s.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "GET", path, nil))
	return w
}

func TestWholeAnswersTakeAsLongAsStreams(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, fakellm.Config{Latency: time.Second, TokenLatency: 100 * time.Millisecond, Tokens: 30})
		for _, stream := range []string{"true", "false"} {
			began := time.Now()
			post(t, s, "/v1/completions", `{"prompt":"x","stream":`+stream+`}`)
			if took := time.Since(began); took != 4*time.Second {
				t.Errorf("stream %s: %s, want 4s", stream, took)
			}
		}
	})
}

// As vLLM's, the counter grows while an answer is generated.
func TestTokensAreCountedAsTheyAreGenerated(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, fakellm.Config{TokenLatency: time.Second, Tokens: 30})
		done := make(chan struct{})
		go func() { defer close(done); post(t, s, "/v1/completions", `{"prompt":"x"}`) }()
		time.Sleep(9500 * time.Millisecond)
		if page := get(t, s, "/metrics").Body.String(); !strings.Contains(page,
			`vllm:generation_tokens_total{engine="0",model_name="fake"} 10.0`) {
			t.Errorf("after 9.5 s: %s", page)
		}
		<-done
	})
}

func TestServerWithoutMetrics(t *testing.T) {
	t.Parallel()
	s := newServer(t, fakellm.Config{Faults: fakellm.Faults{NoMetrics: true}})
	if status := get(t, s, "/metrics").Code; status != http.StatusNotFound {
		t.Errorf("status %d", status)
	}
}

// A gateway gives up on what is silent for too long: a whole answer, and not a stream.
func TestGatewayGivesUpOnWholeAnswers(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		stream string
		tokens int
		status int
		took   time.Duration
	}{
		"a long whole answer":  {"false", 100, http.StatusGatewayTimeout, time.Minute},
		"a short whole answer": {"false", 30, http.StatusOK, 30 * time.Second},
		"a long stream":        {"true", 100, http.StatusOK, 100 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newServer(t, fakellm.Config{TokenLatency: time.Second, Tokens: c.tokens,
					Faults: fakellm.Faults{GatewayTimeout: time.Minute}})
				began := time.Now()
				w := post(t, s, "/v1/completions", `{"prompt":"x","stream":`+c.stream+`}`)
				if took := time.Since(began); w.Code != c.status || took != c.took {
					t.Errorf("status %d after %s", w.Code, took)
				}
			})
		})
	}
}
