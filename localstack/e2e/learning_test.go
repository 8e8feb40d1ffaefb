package e2e

import (
	"fmt"
	"math/rand/v2"
	"net"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"rollout/shared/core/run"
)

// refunds writes the shipped tickets, or the first of them, with their config, and returns
// the file of the tickets.
func refunds(t *testing.T, tickets int) string {
	t.Helper()
	folder := t.TempDir()
	config := read(t, "../../examples/refunds.toml")
	for from, to := range map[string]string{"epochs = 3": "epochs = 2", "samples = 4": "samples = 2",
		"rollout_batch_size = 60": "rollout_batch_size = 40\nparallelism = 4", "\nbatch_size = 16": "\nbatch_size = 8"} {
		if !strings.Contains(config, from) {
			t.Fatalf("examples/refunds.toml does not have %q", from)
		}
		config = strings.Replace(config, from, to, 1)
	}
	write(t, filepath.Join(folder, "refunds.toml"), config)
	all := strings.SplitAfter(read(t, "../../examples/refunds.jsonl"), "\n")
	return write(t, filepath.Join(folder, "refunds.jsonl"), strings.Join(all[:min(tickets, len(all))], ""))
}

// Workers and `rollout up` are killed at random moments of a rollout that learns: during
// answers, reflections and comparisons. Its files are those of an undisturbed run, and so
// are its guidance and what it asked (I1 to I7, I10).
func TestKilledProcessesDoNotChangeWhatARolloutLearns(t *testing.T) {
	t.Parallel()
	const tickets, kills = 240, 3
	calm := install(t, serve(t, "--clerk").url, 0, smallShards)
	id := calm.submit(refunds(t, tickets))
	if s := calm.awaitEnd(id); s.Phase != run.Completed {
		t.Fatalf("the undisturbed run is %s: %s", s.Phase, s.Message)
	}
	want, sum := calm.rolloutFiles(id), calm.outcome(id).summary
	if sum.Rollout.Accepted < 2 || len(want) < 10 {
		t.Fatalf("the undisturbed run learnt nothing: %+v, %d files", sum.Rollout, len(want))
	}
	calm.up.signal(15)
	calm.up.wantExit(0)
	requests := uint64(0)
	for _, r := range sum.Roles {
		requests += r.Items
	}
	for seed := range uint64(2) {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			t.Parallel()
			s := serve(t, "--clerk", "--latency", "15ms", "--spread", "0.8")
			m := &processKiller{testInstallation: install(t, s.url, 3, smallShards), llm: s,
				rng: rand.New(rand.NewPCG(200+seed, 0)), killed: map[int]bool{}}
			id := m.submit(refunds(t, tickets))
			for range kills {
				m.killRandomly(id, requests)
			}
			if got := m.awaitEnd(id); got.Phase != run.Completed {
				t.Fatalf("the run is %s: %s", got.Phase, got.Message)
			}
			wantSameFiles(t, m.rolloutFiles(id), want)
		})
	}
}

var modelURL = regexp.MustCompile(`--engine (http://\S+)`)

// TestDemoRolloutLearns runs the script behind `make demo-rollout`.
func TestDemoRolloutLearns(t *testing.T) {
	t.Parallel()
	folder := filepath.Join(t.TempDir(), "demo")
	p := shell(t, fmt.Sprintf("BIN=%s exec bash ../../scripts/run/rollout.sh %s", binaries, folder))
	p.wantExit(0)
	out := p.stdoutText() + p.stderrText()
	for _, text := range []string{"--workers 3", "completed: 2,160 of 2,160", "Damage on arrival", "Digital goods",
		"report.html"} {
		if !strings.Contains(out, text) {
			t.Errorf("the demo does not print %q:\n%s", text, out)
		}
	}
	found := modelURL.FindStringSubmatch(out)
	if found == nil {
		t.Fatalf("the demo names no model:\n%s", out)
	}
	if _, err := net.Dial("tcp", strings.TrimPrefix(found[1], "http://")); err == nil {
		t.Error("the model goes on after the demo")
	}
	// A second run in the folder begins anew; a folder with other files is left alone.
	write(t, filepath.Join(folder, "..", "mine", "notes"), "mine")
	other := shell(t, fmt.Sprintf("BIN=%s exec bash ../../scripts/run/rollout.sh %s", binaries, filepath.Dir(folder)))
	other.wantExit(1)
	other.wantStderr("other files")
}
