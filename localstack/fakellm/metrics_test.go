package fakellm_test

import (
	"context"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"rollout/localstack/fakellm"
)

// metric returns the value of the first series whose name and labels contain all
// the texts.
func metric(t *testing.T, s *fakellm.Server, texts ...string) string {
	t.Helper()
	w := httptest.NewRecorder()
	s.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "GET", "/metrics", nil))
lines:
	for line := range strings.Lines(w.Body.String()) {
		for _, text := range texts {
			if strings.HasPrefix(line, "#") || !strings.Contains(line, text) {
				continue lines
			}
		}
		return strings.TrimSpace(line[strings.LastIndexByte(line, ' '):])
	}
	t.Fatalf("no metric contains %q:\n%s", texts, w.Body)
	return ""
}

func TestMetricsCountTokensAndEnds(t *testing.T) {
	t.Parallel()
	s := newServer(t, fakellm.Config{Tokens: 9})
	post(t, s, "/v1/completions", `{"prompt":"three words here"}`)
	post(t, s, "/v1/completions", `{"prompt":"three words here","max_tokens":6}`)
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	slow := newServer(t, fakellm.Config{Latency: time.Hour})
	slow.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(gone, "POST", "/v1/completions",
		strings.NewReader(`{"prompt":"x"}`)))
	for _, c := range []struct {
		s    *fakellm.Server
		name string
		want string
	}{
		{s, "vllm:prompt_tokens_total", "6.0"},
		{s, "vllm:generation_tokens_total", "15.0"},
		{s, `finished_reason="stop"`, "1.0"},
		{s, `finished_reason="length"`, "1.0"},
		{s, `finished_reason="abort"`, "0.0"},
		{slow, `finished_reason="abort"`, "1.0"},
		{slow, "vllm:prompt_tokens_total", "1.0"},
		{slow, "vllm:generation_tokens_total", "0.0"},
	} {
		if got := metric(t, c.s, c.name); got != c.want {
			t.Errorf("%s is %s, want %s", c.name, got, c.want)
		}
	}
}

func TestEachStartHasItsOwnStartTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		seen := map[string]bool{}
		for range 3 {
			seen[metric(t, newServer(t, fakellm.Config{}), "process_start_time_seconds")] = true
			time.Sleep(time.Millisecond)
		}
		if len(seen) != 3 {
			t.Errorf("three starts have the times %v", seen)
		}
	})
}

func TestMetricsAreInPrometheusTextFormat(t *testing.T) {
	t.Parallel()
	_, url := start(t, fakellm.Config{Model: `odd "model"`})
	sample := regexp.MustCompile(`^[a-z_:]+(\{([a-z_]+="([^"\\]|\\.)*",?)*\})? [0-9]+(\.[0-9]+)?$`)
	comment := regexp.MustCompile(`^# (HELP|TYPE) [a-z_:]+ .+$`)
	for line := range strings.Lines(scrape(t, url)) {
		line = strings.TrimSuffix(line, "\n")
		if !sample.MatchString(line) && !comment.MatchString(line) {
			t.Errorf("not in Prometheus' text format: %s", line)
		}
	}
}
