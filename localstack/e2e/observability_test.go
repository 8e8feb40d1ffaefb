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
)

// watched is an installation of several processes that say all they can.
func watched(t *testing.T, engine string) (i *testInstallation, events, spans string) {
	t.Helper()
	folder := t.TempDir()
	events, spans = filepath.Join(folder, "events.jsonl"), filepath.Join(folder, "trace.jsonl")
	i = &testInstallation{t: t, dir: t.TempDir(), engine: engine, workers: 2, args: []string{"--events-file", events, "--trace", spans}}
	write(t, filepath.Join(i.dir, "rollout.toml"), "schema_version = 1\n"+quickHealth+smallBites)
	i.start()
	return i, events, spans
}

// Three processes tell one story: in one event stream, and in one trace whose
// spans are one tree.
func TestProcessesTellOneStory(t *testing.T) {
	t.Parallel()
	i, events, spans := watched(t, serve(t).url)
	id := i.submit(promptsFile(t, mixedPrompts(200)))
	sum := i.ends(id)
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
	if counts["run_ended"] != 1 || counts["shard_done"] != sum.Shards.Total || len(workers) != 2 || counts["worker_deregistered"] != 2 {
		t.Errorf("told: %v", counts)
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
			t.Errorf("%s has no parent", s.Name)
		}
	}
	if roots != 1 || shards != sum.Shards.Total {
		t.Errorf("%d first spans, %d of shards, want 1 and %d", roots, shards, sum.Shards.Total)
	}
}

// Who scrapes sees a worker die, the run go on, and nothing lost.
func TestMetricsTellOfAKilledWorker(t *testing.T) {
	t.Parallel()
	i, events, _ := watched(t, serveSlowly(t, 15*time.Millisecond).url)
	m := &processKiller{testInstallation: i, rng: rand.New(rand.NewPCG(1, 0)), killed: map[int]bool{}}
	id := i.submit(promptsFile(t, mixedPrompts(200)))
	m.killWorker(id)
	i.ends(id)
	eventually(t, "the dead worker is told", func() bool {
		return strings.Contains(scraped(t, i), "\nrollout_worker_transitions_total{transition=\"failed\"} 1")
	})
	if text := scraped(t, i); !strings.Contains(text, `rollout_run_transitions_total{phase="completed_with_errors",transition="ended"} 1`) {
		t.Errorf("the run's end is not told:\n%s", text)
	}
	if told := read(t, events); !strings.Contains(told, `"worker_failed"`) {
		t.Error("events do not tell of the dead worker")
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
