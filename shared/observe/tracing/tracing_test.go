package tracing_test

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/protobuf/proto"

	"rollout/shared/core/identity"
	"rollout/shared/fault"
	"rollout/shared/observe"
	"rollout/shared/observe/tracing"
)

const run = identity.RunID("01JD2ZQ4T5W0M1X9YB7R3K8CVE")

// made makes the spans of a little run.
func made(t *testing.T, tracer *observe.Tracer) {
	t.Helper()
	start := time.Unix(1764290000, 0)
	ctx, s := tracer.Start(t.Context(), start, "shard", run, slog.Int("shard", 7), slog.String("worker", "w"))
	_, step := tracer.StartChild(ctx, time.Time{}, "put")
	step.End(fault.New(fault.Conflict, "secret text"))
	s.End(nil)
	tracer.RecordRun(t.Context(), run, start, start.Add(time.Minute), slog.String("phase", "completed"))
}

// fake is a collector.
type fake struct {
	*httptest.Server
	mu    sync.Mutex
	names map[string]string // of spans, with their parents' ids
}

func newFake(t *testing.T) *fake {
	t.Helper()
	f := &fake{names: map[string]string{}}
	f.Server = httptest.NewServer(http.HandlerFunc(f.take))
	t.Cleanup(f.Close)
	return f
}

func (f *fake) take(w http.ResponseWriter, r *http.Request) {
	var body io.Reader = r.Body
	if r.Header.Get("Content-Encoding") == "gzip" {
		body, _ = gzip.NewReader(r.Body)
	}
	b, err := io.ReadAll(body)
	var got collector.ExportTraceServiceRequest
	if err != nil || proto.Unmarshal(b, &got) != nil || r.URL.Path != "/v1/traces" {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, rs := range got.ResourceSpans {
		for _, ss := range rs.ScopeSpans {
			for _, s := range ss.Spans {
				f.names[s.Name] = string(s.ParentSpanId)
			}
		}
	}
}

func TestACollectorGetsTheSpans(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	tracer, end, err := tracing.Open(t.Context(), tracing.Options{Endpoint: f.URL + "/v1/traces", Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	made(t, tracer)
	if err := end(); err != nil {
		t.Fatal(err)
	}
	root := observe.RootOf(run).SpanID()
	if len(f.names) != 3 || f.names["shard"] != string(root[:]) || f.names["run"] != "" || f.names["put"] == "" {
		t.Errorf("it got %q", f.names)
	}
}

// Work goes on whatever becomes of its spans.
func TestACollectorThatIsDownCostsAWarning(t *testing.T) {
	t.Parallel()
	refusing := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) }))
	t.Cleanup(refusing.Close)
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	for name, url := range map[string]string{"refusing": refusing.URL, "gone": gone.URL} {
		var log bytes.Buffer
		tracer, end, err := tracing.Open(t.Context(), tracing.Options{Endpoint: url + "/v1/traces", Log: observe.NewLogger(&log, observe.JSON, slog.LevelInfo)})
		if err != nil {
			t.Fatal(err)
		}
		made(t, tracer)
		began := time.Now()
		if err := end(); err != nil || time.Since(began) > 5*time.Second {
			t.Errorf("%s: %v after %s", name, err, time.Since(began))
		}
		if n := strings.Count(log.String(), "\n"); n == 0 || n > 2 || !strings.Contains(log.String(), "lost") {
			t.Errorf("%s: the log says\n%s", name, &log)
		}
	}
}

func TestAFileGetsALineASpan(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	tracer, end, err := tracing.Open(t.Context(), tracing.Options{File: &out, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	made(t, tracer)
	if err := end(); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) != 3 || strings.Contains(out.String(), "secret text") {
		t.Fatalf("%d lines:\n%s", len(lines), &out)
	}
	for _, want := range []string{`"name":"put","kind":1,`, `"status":{"code":2,"message":"conflict"}`, `{"key":"shard","value":{"intValue":"7"}}`,
		`"traceId":"019345fb9345e0281ea7cb3e0734336e","spanId":"ac844491abd8ba6d","name":"run","kind":1,"startTimeUnixNano":"1764290000000000000","endTimeUnixNano":"1764290060000000000"`,
		`{"key":"service.name","value":{"stringValue":"rollout"}}`} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("there is no %s in\n%s", want, &out)
		}
	}
	for _, line := range lines {
		if !json.Valid([]byte(line)) {
			t.Errorf("no JSON: %s", line)
		}
	}
}

func TestNowhereToGoMakesNoTracer(t *testing.T) {
	t.Parallel()
	if tracer, end, err := tracing.Open(t.Context(), tracing.Options{}); tracer != nil || err != nil || end() != nil {
		t.Error(tracer, err)
	}
}
