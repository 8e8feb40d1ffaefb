package api_test

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"rollout/functions/status/statustest"
	"rollout/shared/core/run"
	"rollout/shared/record"
	"rollout/shared/secret"
)

// streamed is an open stream, of which a test reads lines.
type streamed struct {
	t     *testing.T
	body  io.ReadCloser
	lines *bufio.Scanner
}

// stream opens a stream.
func stream(t *testing.T, server *httptest.Server, query string, header ...string) (*streamed, int) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+"/v1/stream"+query, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w, err := server.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.Body.Close() })
	lines := bufio.NewScanner(w.Body)
	lines.Buffer(nil, 1<<20)
	return &streamed{t, w.Body, lines}, w.StatusCode
}

// await reads until a line has the text.
func (s *streamed) await(text string) string {
	s.t.Helper()
	for s.lines.Scan() {
		if strings.Contains(s.lines.Text(), text) {
			return s.lines.Text()
		}
	}
	s.t.Fatalf("the stream ended without %q: %v", text, s.lines.Err())
	return ""
}

func TestStreamsTellWhatChangesUntilTheProcessEnds(t *testing.T) {
	t.Parallel()
	d := newFixture(t)
	d.submitted(runA, run.Running)
	d.save(record.OpenRunKey(runA), record.NamedRun{Schema: 1, Run: runA})
	d.save(record.RunIndexKey, record.RunIndex{Schema: 1, Built: true})
	ctx, end := context.WithCancel(t.Context())
	server := httptest.NewServer(d.Handler(secret.Value{}, d.probes(), d.Stream(ctx)))
	defer server.Close()
	if _, code := stream(t, server, "?run="+string(runB)); code != http.StatusNotFound {
		t.Errorf("a stream of an unknown run answers %d", code)
	}
	if _, code := stream(t, server, "", "Origin", "https://evil.example"); code != http.StatusForbidden {
		t.Errorf("a stream for another site answers %d", code)
	}
	var open []*streamed
	for range 8 {
		s, code := stream(t, server, "?run="+string(runA))
		if code != http.StatusOK {
			t.Fatalf("a stream answers %d", code)
		}
		open = append(open, s)
	}
	for _, s := range open {
		s.await("retry: 2000")
		s.await("event: overview")
		s.await(`"phase":"running"`)
		s.await("event: run")
		s.await(`"phase":"running"`)
	}
	st := run.New(runA)
	st.Phase = run.Paused
	d.save(record.CoordinatorKey(runA), st)
	for _, s := range open {
		s.await("event: run")
		s.await(`"phase":"paused"`)
	}
	end()
	for _, s := range open {
		for s.lines.Scan() {
		}
		if err := s.lines.Err(); err != nil {
			t.Errorf("the stream broke off: %v", err)
		}
	}
}

func TestStreamsAreBounded(t *testing.T) {
	t.Parallel()
	d := newFixture(t)
	d.save(record.ManifestKey(runA), statustest.Manifest(runA))
	ctx, end := context.WithCancel(t.Context())
	server := httptest.NewServer(d.Handler(secret.Value{}, d.probes(), d.Stream(ctx)))
	defer server.Close()
	defer end() // first: the server waits for the streams
	var open []*streamed
	for range 64 {
		s, code := stream(t, server, "")
		if code != http.StatusOK {
			t.Fatalf("stream %d answers %d", len(open), code)
		}
		open = append(open, s)
	}
	if _, code := stream(t, server, ""); code != http.StatusTooManyRequests {
		t.Errorf("one more answers %d", code)
	}
	if err := open[0].body.Close(); err != nil {
		t.Fatal(err)
	}
	for code := 0; code != http.StatusOK; { // the server learns that a client has left
		_, code = stream(t, server, "")
	}
}
