package command

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"rollout/functions/api"
	"rollout/functions/diagnosis"
	"rollout/functions/status"
	"rollout/scripts/rollout/terminal"
	"rollout/shared/core/health"
	"rollout/shared/core/identity"
	"rollout/shared/core/run"
	"rollout/shared/installation"
)

var rewrite = flag.Bool("rewrite", false, "write the pictures anew")

// pictured returns the screens of the pictures, by name.
func pictured() map[string]screen {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	at := func(ago time.Duration) *time.Time { t := now.Add(-ago); return &t }
	rate := func(x float64) *float64 { return &x }
	runOf := func(id, name string, phase run.Phase, items status.Items, ago time.Duration) status.Status {
		return status.Status{Run: identity.RunID(id), Name: name, Phase: phase, Pool: "default", Model: "llama-8b",
			Items:     items,
			CreatedAt: now.Add(-ago), StartedAt: at(ago - time.Second)}
	}
	nightly := runOf("4Z766MXB0PM1X9YB7R3K8CVE01", "nightly-evaluation-of-the-model-a", run.Running,
		status.Items{Total: 2_000_000, Done: 640_000, Failed: 1_200, Uncommitted: 800, Planned: true}, 2*time.Hour)
	nightly.Rate, nightly.ETASeconds = rate(1234.5), rate(1101)
	twin := runOf("HZ2ZQ4T5W0M1X9YB7R3K8CVF02", "nightly-evaluation-of-the-model-b", run.Paused,
		status.Items{Total: 1, Done: 0, Planned: true}, time.Hour)
	twin.Blockers = []status.Blocker{{Code: diagnosis.IsPaused, Text: "paused: lunch",
		Remedy: "`rollout resume HZ2ZQ4T5W0M1X9YB7R3K8CVF02` lets it go on"}}
	failing := runOf("AAQZQ4T5W0M1X9YB7R3K8CVG03", "broken", run.CompletedWithErrors,
		status.Items{Total: 500, Failed: 500, Planned: true}, 26*time.Hour)
	done := runOf("9MKZQ4T5W0M1X9YB7R3K8CVH04", "weekly", run.Completed,
		status.Items{Total: 90, Done: 90, Planned: true}, 80*time.Hour)
	worker := status.WorkerStatus{Worker: "01JD2ZQ4T5W0M1X9YB7R3K8CW1", Pool: "default", Alive: true, State: health.Ready,
		Engine: status.EngineReady, Host: "box", PID: 4711, InFlight: 64, HeartbeatAt: now.Add(-300 * time.Millisecond),
		Load: health.Load{InFlight: 60, MedianMS: 2100, Rate: 1234.5, TokenRate: 45_678, Faults: 3,
			Servers: []health.Server{{Name: "http://127.0.0.1:8000/v1", State: health.ServerClosed, InFlight: 60, Limit: 64,
				Waiting: 2}}},
		Holds: []health.HeldShard{{Run: nightly.Run, Shard: 7, Rows: 5, Items: 256}}}
	dead := worker
	dead.Alive, dead.HeartbeatAt = false, now.Add(-9*time.Second)
	lost := nightly
	lost.Blockers = []status.Blocker{{Code: diagnosis.NoWorker, Text: "no worker of pool default is alive",
		Remedy: "start `rollout up`"}}
	shared, away := worker, worker
	shared.Worker, shared.Load.Servers = "01JD2ZQ4T5W0M1X9YB7R3K8CX2", append(slices.Clone(worker.Load.Servers),
		health.Server{Name: "http://gpu-17.cluster.example:8000/v1", State: "open", Limit: 64, Waiting: -1,
			LastError: "dial tcp 10.0.0.17:8000: connect: connection refused; the server has been asked 12 times since"})
	shared.Holds = append(slices.Clone(worker.Holds), health.HeldShard{Run: twin.Run, Shard: 0, Items: 1},
		health.HeldShard{Run: nightly.Run, Shard: 9, Items: 256}, health.HeldShard{Run: nightly.Run, Shard: 10},
		health.HeldShard{Run: nightly.Run, Shard: 11}, health.HeldShard{Run: nightly.Run, Shard: 12})
	away.Worker, away.Pool, away.Engine, away.Holds = "01JD2ZQ4T5W0M1X9YB7R3K8CY3", "judges", status.EngineAway, nil
	of := func(one bool, workers []status.WorkerStatus, runs ...status.Status) screen {
		return screen{Overview: api.Overview{Runs: runs, Workers: workers}, one: one, live: true, now: now,
			path:      func(key string) string { return "/data/bucket/" + key },
			withFlags: func(text string) string { return withLocationFlags(text, installation.Location{Dir: "/data"}) }}
	}
	workers := []status.WorkerStatus{worker}
	piped, warming := worker, worker
	piped.Load.Servers, warming.Load.Servers = nil, nil
	piped.Load.Pipeline = &health.Pipeline{Signature: "stage 1 bound", OverlapScore: 0.973}
	warming.Load.Pipeline = &health.Pipeline{Signature: "warming up"}
	return map[string]screen{
		"runs":          of(false, workers, failing, twin, nightly, done),
		"one":           of(true, workers, nightly),
		"workers died":  of(false, []status.WorkerStatus{dead}, lost),
		"all failed":    of(true, workers, failing),
		"only ended":    of(false, nil, failing, done),
		"without a run": of(false, workers),
		"pipelines":     of(false, []status.WorkerStatus{piped, warming}, nightly),
		"two pools":     of(false, []status.WorkerStatus{shared, away}, twin, nightly),
	}
}

// Each picture has all screens of one width; -rewrite writes them anew.
func TestScreensLookAsPictured(t *testing.T) {
	t.Parallel()
	for _, columns := range []int{60, 80, 120, 200} {
		for _, colours := range []bool{false, true} {
			var b strings.Builder
			for _, name := range []string{"runs", "one", "workers died", "all failed", "only ended", "without a run",
				"two pools", "pipelines"} {
				s := pictured()[name]
				s.columns, s.colours = columns, terminal.Palette(colours)
				fmt.Fprintf(&b, "== %s\n", name)
				for _, l := range s.lines(0) {
					if n := terminal.Width(l); n > columns {
						t.Errorf("%s at %d columns has a line of %d: %s", name, columns, n, l)
					}
					b.WriteString(strings.ReplaceAll(l, "\x1b", "ESC") + "\n")
				}
			}
			path := filepath.Join("testdata", "screens", fmt.Sprintf("%d.txt", columns))
			if colours {
				path = filepath.Join("testdata", "screens", fmt.Sprintf("%d-colours.txt", columns))
			}
			if *rewrite {
				if err := os.WriteFile(path, []byte(b.String()), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(path)
			if err != nil || string(want) != b.String() {
				t.Errorf("the screens are not those of %s (-rewrite writes it), %v:\n%s", path, err, b.String())
			}
		}
	}
}
