package setup

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
)

const run = identity.RunID("01JD2ZQ4T5W0M1X9YB7R3K8CVE")

// recordRun records the three spans of a run.
func recordRun(t *testing.T, tracer *observe.Tracer) {
	t.Helper()
	start := time.Unix(1764290000, 0)
	ctx, s := tracer.Start(t.Context(), start, "shard", run, slog.Int("shard", 7), slog.String("worker", "w"))
	_, child := tracer.StartChild(ctx, time.Time{}, "put")
	child.End(fault.New(fault.Conflict, "secret text"))
	s.End(nil)
	tracer.RecordRun(t.Context(), run, start, start.Add(time.Minute), slog.String("phase", "completed"))
}

// fakeCollector is an OpenTelemetry collector that stores spans.
type fakeCollector struct {
	*httptest.Server
	mu      sync.Mutex
	parents map[string]string // the ids of spans' parents, by the span's name
}

func newFakeCollector(t *testing.T) *fakeCollector {
	t.Helper()
	f := &fakeCollector{parents: map[string]string{}}
	f.Server = httptest.NewServer(http.HandlerFunc(f.receive))
	t.Cleanup(f.Close)
	return f
}

func (f *fakeCollector) receive(w http.ResponseWriter, r *http.Request) {
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
				f.parents[s.Name] = string(s.ParentSpanId)
			}
		}
	}
}

func TestCollectorReceivesSpans(t *testing.T) {
	t.Parallel()
	f := newFakeCollector(t)
	o := traceOptions{endpoint: f.URL + "/v1/traces", log: slog.New(slog.DiscardHandler)}
	tracer, end, err := openTracer(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	recordRun(t, tracer)
	if err := end(); err != nil {
		t.Fatal(err)
	}
	root := observe.RootOf(run).SpanID()
	p := f.parents
	if len(p) != 3 || p["shard"] != string(root[:]) || p["run"] != "" || p["put"] == "" {
		t.Errorf("spans and their parents are %q", p)
	}
}

// Work continues when its spans cannot be exported.
func TestFailingCollectorOnlyLogsWarnings(t *testing.T) {
	t.Parallel()
	refusing := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusForbidden)
	}))
	t.Cleanup(refusing.Close)
	closed := httptest.NewServer(http.NotFoundHandler())
	closed.Close()
	for name, url := range map[string]string{"refusing": refusing.URL, "closed": closed.URL} {
		var log bytes.Buffer
		o := traceOptions{endpoint: url + "/v1/traces", log: observe.NewLogger(&log, observe.JSON, slog.LevelInfo)}
		tracer, end, err := openTracer(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		recordRun(t, tracer)
		began := time.Now()
		if err := end(); err != nil || time.Since(began) > 5*time.Second {
			t.Errorf("%s: %v after %s", name, err, time.Since(began))
		}
		if n := strings.Count(log.String(), "\n"); n == 0 || n > 2 || !strings.Contains(log.String(), "lost") {
			t.Errorf("%s: the log has\n%s\nwant one or two warnings about lost spans", name, &log)
		}
	}
}

func TestFileHasOneLinePerSpan(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	tracer, end, err := openTracer(t.Context(), traceOptions{file: &out, log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	recordRun(t, tracer)
	if err := end(); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) != 3 || strings.Contains(out.String(), "secret text") {
		t.Fatalf("%d lines:\n%s", len(lines), &out)
	}
	for _, want := range []string{
		`"name":"put","kind":1,`, `"status":{"code":2,"message":"conflict"}`, `{"key":"shard","value":{"intValue":"7"}}`,
		`"traceId":"019345fb9345e0281ea7cb3e0734336e","spanId":"ac844491abd8ba6d","name":"run","kind":1,` +
			`"startTimeUnixNano":"1764290000000000000","endTimeUnixNano":"1764290060000000000"`,
		`{"key":"service.name","value":{"stringValue":"rollout"}}`,
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%s is missing in\n%s", want, &out)
		}
	}
	for _, line := range lines {
		if !json.Valid([]byte(line)) {
			t.Errorf("invalid JSON: %s", line)
		}
	}
}

func TestOpenTracerWithoutExportersReturnsNil(t *testing.T) {
	t.Parallel()
	tracer, end, err := openTracer(t.Context(), traceOptions{})
	if tracer != nil || err != nil || end() != nil {
		t.Errorf("openTracer = %v, %v, want nil", tracer, err)
	}
}
