package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"rollout/localstack/scenarios"
)

// installObserved makes an installation of up and two worker processes that
// write events and spans to files. A config with a [health] replaces
// defaultHealth.
func installObserved(t *testing.T, engine, config string) (i *testInstallation, events, spans string) {
	t.Helper()
	folder := t.TempDir()
	events, spans = filepath.Join(folder, "events.jsonl"), filepath.Join(folder, "trace.jsonl")
	i = &testInstallation{t: t, dir: t.TempDir(), engine: engine, workers: 2,
		args: []string{"--events-file", events, "--trace", spans}}
	i.configure(config)
	i.start()
	return i, events, spans
}

// Three processes write one event stream and one trace whose spans are one
// tree. The workers stay alive for the whole run, so that the counts are exact.
func TestProcessesShareOneEventStreamAndTrace(t *testing.T) {
	t.Parallel()
	i, events, spans := installObserved(t, serve(t).url, patientHealth+smallShards)
	id := i.submit(promptsFile(t, scenarios.MixedPrompts(200)))
	sum := i.awaitEnd(id)
	i.up.signal(syscall.SIGTERM)
	i.up.wantExit(0)

	counts, workers := map[string]int{}, map[string]bool{}
	for _, line := range lines(t, read(t, events)) {
		var e struct{ Event, Run, Worker string }
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		counts[e.Event]++
		if e.Event == "worker_registered" {
			workers[e.Worker] = true
		}
	}
	if counts["run_ended"] != 1 || counts["shard_done"] != sum.Shards.Total || len(workers) != 2 ||
		counts["worker_deregistered"] != 2 {
		t.Errorf("the event stream has %v, want one run_ended, %d shard_done and 2 workers", counts, sum.Shards.Total)
	}

	type span struct{ TraceID, SpanID, ParentSpanID, Name string }
	byID, shards := map[string]span{}, 0
	for _, line := range lines(t, read(t, spans)) {
		var l struct {
			ResourceSpans []struct{ ScopeSpans []struct{ Spans []span } }
		}
		if err := json.Unmarshal([]byte(line), &l); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		s := l.ResourceSpans[0].ScopeSpans[0].Spans[0]
		byID[s.SpanID] = s
		if s.Name == "shard" {
			shards++
		}
	}
	roots := 0
	for _, s := range byID {
		parent, ok := byID[s.ParentSpanID]
		if s.Name == "run" {
			roots++
		} else if !ok || parent.TraceID != s.TraceID {
			t.Errorf("span %s has no parent in its trace", s.Name)
		}
	}
	if roots != 1 || shards != sum.Shards.Total {
		t.Errorf("%d root spans and %d shard spans, want 1 and %d", roots, shards, sum.Shards.Total)
	}
}

func TestMetricsCountAKilledWorker(t *testing.T) {
	t.Parallel()
	i, events, _ := installObserved(t, serveSlowly(t, 15*time.Millisecond).url, smallShards)
	m := &processKiller{testInstallation: i, rng: rand.New(rand.NewPCG(1, 0)), killed: map[int]bool{}}
	id := i.submit(promptsFile(t, scenarios.MixedPrompts(200)))
	m.killWorker(id)
	i.awaitEnd(id)
	eventually(t, "the metrics count the dead worker", func() bool {
		return strings.Contains(scraped(t, i), "\nrollout_worker_transitions_total{transition=\"failed\"} 1")
	})
	const ended = `rollout_run_transitions_total{phase="completed_with_errors",transition="ended"} 1`
	if text := scraped(t, i); !strings.Contains(text, ended) {
		t.Errorf("the metrics do not count the end of the run:\n%s", text)
	}
	if stream := read(t, events); !strings.Contains(stream, `"worker_failed"`) {
		t.Error("the event stream has no worker_failed")
	}
}

func scraped(t *testing.T, i *testInstallation) string {
	t.Helper()
	r, err := http.Get(i.url + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	if err != nil || r.StatusCode != http.StatusOK {
		t.Fatal(fmt.Errorf("%s: %w", r.Status, err))
	}
	return string(b)
}
