package command_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"rollout/scripts/rollout/command"
	"rollout/shared/clock"
)

// runningUp is a running `rollout up`.
type runningUp struct {
	dir, url string
	errs     *syncBuffer
	stop     func() int // returns its exit code
}

var apiAt = regexp.MustCompile(`API at (http://[0-9.:]+)`)

// startUp starts `rollout up` with an API on a free port.
func startUp(t *testing.T, dir string, args ...string) runningUp {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	s := runningUp{dir: dir, errs: newSyncBuffer()}
	ended := make(chan int, 1)
	go func() {
		ended <- command.Main(ctx, append([]string{"up", "--dir", dir, "--listen", "127.0.0.1:0", "--log-level", "error"},
			args...),
			command.Env{Out: io.Discard, Err: s.errs, Clock: clock.System{}, Getenv: noEnv})
	}()
	select {
	case <-s.errs.first:
	case code := <-ended:
		t.Fatalf("exit code %d: %s", code, s.errs)
	}
	at := apiAt.FindStringSubmatch(s.errs.String())
	if at == nil {
		t.Fatal(s.errs)
	}
	s.url = at[1]
	s.stop = func() int { cancel(); return <-ended }
	return s
}

// get returns the status code and the body of a response of the API.
func (s runningUp) get(t *testing.T, path string) (int, string) {
	t.Helper()
	r, err := http.Get(s.url + path)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return r.StatusCode, string(b)
}

// waitFor repeats a request until the response contains the text, and returns the response. Metrics of a scan lag
// behind.
func (s runningUp) waitFor(t *testing.T, path, text string) string {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(20 * time.Second); ; <-tick.C {
		_, got := s.get(t, path)
		if strings.Contains(got, text) {
			return got
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s never returns %s:\n%s", path, text, got)
		}
	}
}

// submitAndWait submits a prompts file and waits for the end of its run.
func (s runningUp) submitAndWait(t *testing.T, lines string) result {
	t.Helper()
	file := filepath.Join(t.TempDir(), "asked.jsonl")
	if err := os.WriteFile(file, []byte(lines), 0o600); err != nil {
		t.Fatal(err)
	}
	return rolloutNow(t.Context(), "submit", file, "--dir", s.dir, "--wait")
}

func TestUpServesMetrics(t *testing.T) {
	t.Parallel()
	s := startUp(t, t.TempDir(), "--engine", "mock")
	if r := s.submitAndWait(t, strings.Repeat(`{"prompt":"Hello"}`+"\n", 300)+"{}\n"); r.code != 1 ||
		!strings.Contains(r.err, "300") {
		t.Errorf("%+v", r)
	}
	text := s.waitFor(t, "/metrics", "\nrollout_workers{pool=\"default\",state=\"ready\"} 1")
	for _, line := range []string{
		`rollout_items_total{class="answered"} 300`, `rollout_items_total{class="invalid_line"} 1`,
		`rollout_requests_total{code="ok"} 300`,
		`rollout_request_duration_seconds_count 300`,
		`rollout_run_transitions_total{phase="completed_with_errors",transition="ended"} 1`,
		`rollout_engine_ready{pool="default"} 1`,
		`rollout_queue_dead_letters{queue="coordinate"} 0`, `rollout_queue_messages{queue="work-default",state="visible"} 0`,
		`rollout_document_requests_total{code="ok",document="coordinator",operation="replace"} `,
		`rollout_blob_requests_total{code="ok",operation="put"} `,
		`rollout_queue_requests_total{code="ok",operation="ack",queue="work-default"} `,
	} {
		if !strings.Contains(text, "\n"+line) {
			t.Errorf("there is no %s", line)
		}
	}
	problems, err := promlint.New(strings.NewReader(text)).Lint()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
	for _, path := range []string{"/healthz", "/readyz"} {
		if code, text := s.get(t, path); code != http.StatusOK || !strings.Contains(text, `"ready":true`) {
			t.Errorf("%s answers %d %s", path, code, text)
		}
	}
	if code := s.stop(); code != 0 && !strings.Contains(s.errs.String(), "context canceled") {
		t.Errorf("exit code %d: %s", code, s.errs)
	}
}

func TestUpIsNotReadyWithoutItsEngine(t *testing.T) {
	t.Parallel()
	s := startUp(t, t.TempDir(), "--engine", "http://127.0.0.1:9/v1", "--model", "m")
	if code, text := s.get(t, "/readyz"); code != http.StatusServiceUnavailable ||
		!strings.Contains(text, `"ready":false`) {
		t.Errorf("/readyz answers %d %s", code, text)
	}
	s.waitFor(t, "/metrics", `rollout_server_up{server="http://127.0.0.1:9/v1"} `)
	if code, text := s.get(t, "/healthz"); code != http.StatusOK {
		t.Errorf("/healthz answers %d %s, although a restart would not help", code, text)
	}
	s.stop()
}

// Canaries: texts that may occur only in inputs, outputs and requests.
const (
	canaryPrompt = "canary-of-a-prompt"
	canaryKey    = "canary-of-a-key"
)

// newLeakyServer starts an inference server that repeats prompt and key in every response.
func newLeakyServer(t *testing.T) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/models") {
			_, _ = io.WriteString(w, `{"data":[{"id":"m"}]}`)
			return
		}
		body, _ := io.ReadAll(r.Body)
		if r.Header.Get("Authorization") != "Bearer "+canaryKey {
			t.Errorf("the key is not sent: %q", r.Header.Get("Authorization"))
		}
		text := canaryPrompt + " " + canaryKey
		switch {
		case bytes.Contains(body, []byte("refuse")):
			w.WriteHeader(http.StatusBadRequest)
		case bytes.Contains(body, []byte("fail")):
			w.WriteHeader(http.StatusInternalServerError)
		default:
			w.Header().Set("Content-Type", "application/json")
			_, _ = fmt.Fprintf(w, `{"choices":[{"index":0,"finish_reason":"stop","message":{"content":%q}}],`+
				`"usage":{"prompt_tokens":1,"completion_tokens":1}}`, text)
			return
		}
		_, _ = fmt.Fprintf(w, `{"error":{"message":%q}}`, text)
	}))
	t.Cleanup(s.Close)
	return s
}

func TestPromptsAndKeysDoNotLeak(t *testing.T) {
	t.Setenv("ROLLOUT_SECRET_ENGINE_KEY", canaryKey)
	dir, engine := t.TempDir(), newLeakyServer(t)
	if err := os.WriteFile(filepath.Join(dir, "rollout.toml"),
		[]byte("schema_version = 1\nsecrets = [\"engine-key\"]\n[engine]\nsecret = \"engine-key\"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	file, spans := filepath.Join(t.TempDir(), "events.jsonl"), filepath.Join(t.TempDir(), "trace.jsonl")
	s := startUp(t, dir, "--engine", engine.URL+"/v1", "--log-level", "debug", "--log-format", "json", "--events-file",
		file, "--trace", spans)
	r := s.submitAndWait(t, `{"id":"a","prompt":"`+canaryPrompt+`"}
{"id":"b","prompt":"`+canaryPrompt+` refuse"}
{"id":"c","prompt":"`+canaryPrompt+` fail"}
{"id":"d","prompt":"`+canaryPrompt+`
`)
	if r.code != 1 || !strings.Contains(r.err, "1 of 4 items") && !strings.Contains(r.err, "3 of 4 items failed") {
		t.Errorf("%+v", r)
	}
	_, metrics := s.get(t, "/metrics")
	_, health := s.get(t, "/readyz")
	s.stop()
	events, err := os.ReadFile(file)
	if err != nil || len(events) == 0 {
		t.Error("no events", err)
	}
	traced, _ := spansOf(t, spans)
	for name, text := range map[string]string{"log": s.errs.String(), "spans": traced, "events": string(events),
		"metrics": metrics, "health": health} {
		for _, canary := range []string{canaryPrompt, canaryKey} {
			if i := strings.Index(text, canary); i >= 0 {
				t.Errorf("%s contain %s: %s", name, canary, text[max(0, i-300):i+len(canary)])
			}
		}
	}
	if !strings.Contains(s.errs.String(), `"msg":"shard_done"`) || !strings.Contains(s.errs.String(), `"shard":0`) {
		t.Error("the log at level debug has no lines about shards")
	}
}
