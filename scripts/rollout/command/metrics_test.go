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

// serving is an `up` that runs until it is stopped.
type serving struct {
	dir, url string
	errs     *syncBuffer
	stop     func() int // returns its exit code
}

var apiAt = regexp.MustCompile(`API at (http://[0-9.:]+)`)

// serve starts an `up` with an API on a port of its own.
func serve(t *testing.T, dir string, args ...string) serving {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	s := serving{dir: dir, errs: newSyncBuffer()}
	ended := make(chan int, 1)
	go func() {
		ended <- command.Main(ctx, append([]string{"up", "--dir", dir, "--listen", "127.0.0.1:0", "--log-level", "error"}, args...),
			command.Env{Out: io.Discard, Err: s.errs, Clock: clock.System{}, Getenv: func(string) string { return "" }})
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

// get is an answer's code and body.
func (s serving) get(t *testing.T, path string) (int, string) {
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

// until asks until the answer has the text: what a scan of the installation
// finds is some moments old.
func (s serving) until(t *testing.T, path, text string) string {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(20 * time.Second); ; <-tick.C {
		_, got := s.get(t, path)
		if strings.Contains(got, text) {
			return got
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s never tells %s:\n%s", path, text, got)
		}
	}
}

// answered runs one file of prompts to its end.
func (s serving) answered(t *testing.T, lines string) result {
	t.Helper()
	file := filepath.Join(t.TempDir(), "asked.jsonl")
	if err := os.WriteFile(file, []byte(lines), 0o600); err != nil {
		t.Fatal(err)
	}
	return now(t.Context(), "submit", file, "--dir", s.dir, "--wait")
}

func TestUpServesWhatItCounts(t *testing.T) {
	t.Parallel()
	s := serve(t, t.TempDir(), "--engine", "mock")
	if r := s.answered(t, strings.Repeat(`{"prompt":"Hello"}`+"\n", 300)+"{}\n"); r.code != 1 || !strings.Contains(r.err, "300") {
		t.Errorf("%+v", r)
	}
	text := s.until(t, "/metrics", "\nrollout_workers{pool=\"default\",state=\"ready\"} 1")
	for _, line := range []string{
		`rollout_items_total{class="answered"} 300`, `rollout_items_total{class="invalid_line"} 1`, `rollout_requests_total{code="ok"} 300`,
		`rollout_request_duration_seconds_count 300`, `rollout_run_transitions_total{phase="completed_with_errors",transition="ended"} 1`,
		`rollout_engine_ready{pool="default"} 1`,
		`rollout_queue_dead_letters{queue="coordinate"} 0`, `rollout_queue_messages{queue="work-default",state="visible"} 0`,
		`rollout_document_requests_total{code="ok",document="coordinator",operation="replace"} `,
		`rollout_blob_requests_total{code="ok",operation="put"} `, `rollout_queue_requests_total{code="ok",operation="ack",queue="work-default"} `,
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
	s := serve(t, t.TempDir(), "--engine", "http://127.0.0.1:9/v1", "--model", "m")
	if code, text := s.get(t, "/readyz"); code != http.StatusServiceUnavailable || !strings.Contains(text, `"ready":false`) {
		t.Errorf("/readyz answers %d %s", code, text)
	}
	s.until(t, "/metrics", `rollout_server_up{server="http://127.0.0.1:9/v1"} `)
	if code, text := s.get(t, "/healthz"); code != http.StatusOK {
		t.Errorf("/healthz answers %d %s: starting it again would not help", code, text)
	}
	s.stop()
}

// Canaries: what must not be in anything but inputs, outputs and requests.
const (
	canaryPrompt = "canary-of-a-prompt"
	canaryKey    = "canary-of-a-key"
)

// blabbing is a server that repeats prompt and key in all that it says.
func blabbing(t *testing.T) *httptest.Server {
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
		say := canaryPrompt + " " + canaryKey
		switch {
		case bytes.Contains(body, []byte("refuse")):
			w.WriteHeader(http.StatusBadRequest)
		case bytes.Contains(body, []byte("fail")):
			w.WriteHeader(http.StatusInternalServerError)
		default:
			w.Header().Set("Content-Type", "application/json")
			_, _ = fmt.Fprintf(w, `{"choices":[{"index":0,"finish_reason":"stop","message":{"content":%q}}],"usage":{"prompt_tokens":1,"completion_tokens":1}}`, say)
			return
		}
		_, _ = fmt.Fprintf(w, `{"error":{"message":%q}}`, say)
	}))
	t.Cleanup(s.Close)
	return s
}

func TestNeitherPromptsNorKeysAreTold(t *testing.T) {
	t.Setenv("ROLLOUT_SECRET_ENGINE_KEY", canaryKey)
	dir, engine := t.TempDir(), blabbing(t)
	if err := os.WriteFile(filepath.Join(dir, "rollout.toml"), []byte("schema_version = 1\nsecrets = [\"engine-key\"]\n[engine]\nsecret = \"engine-key\"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	file, spans := filepath.Join(t.TempDir(), "events.jsonl"), filepath.Join(t.TempDir(), "trace.jsonl")
	s := serve(t, dir, "--engine", engine.URL+"/v1", "--log-level", "debug", "--log-format", "json", "--events-file", file, "--trace", spans)
	r := s.answered(t, `{"id":"a","prompt":"`+canaryPrompt+`"}
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
	told, err := os.ReadFile(file)
	if err != nil || len(told) == 0 {
		t.Error("no events", err)
	}
	traced, _ := spansOf(t, spans)
	for name, text := range map[string]string{"log": s.errs.String(), "spans": traced, "events": string(told), "metrics": metrics, "health": health} {
		for _, canary := range []string{canaryPrompt, canaryKey} {
			if i := strings.Index(text, canary); i >= 0 {
				t.Errorf("%s tell %s: %s", name, canary, text[max(0, i-300):i+len(canary)])
			}
		}
	}
	if !strings.Contains(s.errs.String(), `"msg":"shard_done"`) || !strings.Contains(s.errs.String(), `"shard":0`) {
		t.Error("the log at debug does not tell of shards")
	}
}
