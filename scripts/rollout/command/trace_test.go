package command_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"rollout/shared/core/identity"
	"rollout/shared/observe"
)

// span is one span of a trace file.
type span struct {
	TraceID, SpanID, ParentSpanID, Name string
	Attributes                          []struct {
		Key   string
		Value struct{ StringValue, IntValue string }
	}
}

func (s span) attr(key string) string {
	for _, a := range s.Attributes {
		if a.Key == key {
			return a.Value.StringValue + a.Value.IntValue
		}
	}
	return ""
}

// spansOf returns the text and the spans of a trace file.
func spansOf(t *testing.T, file string) (text string, out []span) {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		var l struct {
			ResourceSpans []struct{ ScopeSpans []struct{ Spans []span } }
		}
		if err := json.Unmarshal([]byte(line), &l); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		out = append(out, l.ResourceSpans[0].ScopeSpans[0].Spans...)
	}
	return string(b), out
}

// tree returns the distinct paths of spans: their names, preceded by those of their ancestors.
func tree(t *testing.T, spans []span) (paths []string) {
	t.Helper()
	byID := map[string]span{}
	for _, s := range spans {
		byID[s.SpanID] = s
	}
	for _, s := range spans {
		path := s.Name
		for at := s; at.ParentSpanID != ""; {
			parent, ok := byID[at.ParentSpanID]
			if !ok || parent.TraceID != at.TraceID {
				t.Fatalf("%s has no parent in its trace", path)
			}
			at, path = parent, parent.Name+"/"+path
		}
		paths = append(paths, path)
	}
	slices.Sort(paths)
	return slices.Compact(paths)
}

// yesResponse answers requests for models, completions and chat completions.
const yesResponse = `{"data":[{"id":"m"}],` +
	`"choices":[{"index":0,"finish_reason":"stop","text":"yes","message":{"content":"yes"}}]}`

func TestTraceCoversARunFromUploadToEnd(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	parents := map[string]int{} // of requests
	engine := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/chat/completions") || strings.HasSuffix(r.URL.Path, "/v1/completions") {
			mu.Lock()
			parents[r.Header.Get("Traceparent")]++
			mu.Unlock()
		}
		_, _ = io.WriteString(w, yesResponse)
	}))
	t.Cleanup(engine.Close)
	dir := newUploads(t, prompt)
	file := filepath.Join(t.TempDir(), "trace.jsonl")
	up := []string{"up", "--dir", dir, "--engine", engine.URL + "/v1", "--once", "--listen", "off"}
	if r := rolloutNow(t.Context(), append(up, "--trace", file)...); r.code != 0 {
		t.Fatal(r.err)
	}
	text, spans := spansOf(t, file)
	got := tree(t, spans)
	for _, want := range []string{"run", "run/submit", "run/submit/plan", "run/submit/plan/plan range",
		"run/coordinate step"} {
		if !slices.Contains(got, want) {
			t.Errorf("there is no %s in\n%s", want, strings.Join(got, "\n"))
		}
	}
	// The parent of finalize depends on whether a follower or the last step requested it.
	if !slices.ContainsFunc(got, func(p string) bool { return strings.HasSuffix(p, "/finalize") }) {
		t.Errorf("there is no finalize in\n%s", strings.Join(got, "\n"))
	}
	for _, want := range []string{"claim", "load", "execute", "commit", "commit/put"} {
		if !slices.Contains(got, "run/coordinate step/shard/"+want) {
			t.Errorf("a shard has no %s in\n%s", want, strings.Join(got, "\n"))
		}
	}
	var executions []string
	for _, s := range spans {
		if run := identity.RunID(s.attr("run")); s.Name == "run" && observe.RootOf(run).SpanID().String() != s.SpanID {
			t.Errorf("the first span of run %s is %s", run, s.SpanID)
		}
		if s.Name == "shard" && (s.attr("shard") == "" || s.attr("attempt") != "1" || s.attr("worker") == "") {
			t.Errorf("a shard is not named: %+v", s)
		}
		if s.Name == "execute" {
			executions = append(executions, "00-"+s.TraceID+"-"+s.SpanID+"-01")
		}
	}
	if len(parents) == 0 {
		t.Error("there was no request")
	}
	for p := range parents {
		if !slices.Contains(executions, p) {
			t.Errorf("a request has the parent %q, want one of %q", p, executions)
		}
	}
	if strings.Contains(text, "Hello") || strings.Contains(text, "yes") {
		t.Errorf("spans contain a prompt or a completion:\n%s", text)
	}
}

func TestRequestsOfUntracedRunsCarryNoTraceparent(t *testing.T) {
	t.Parallel()
	engine := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if h := r.Header.Get("Traceparent"); h != "" {
			t.Errorf("a request carries %q", h)
		}
		_, _ = io.WriteString(w, yesResponse)
	}))
	t.Cleanup(engine.Close)
	if r := rolloutNow(t.Context(), "up", "--dir", newUploads(t, prompt), "--engine", engine.URL+"/v1", "--once",
		"--listen", "off"); r.code != 0 {
		t.Fatal(r.err)
	}
}
