package e2e

import (
	"fmt"
	"math/rand/v2"
	"net"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"rollout/localstack/clerk"
	"rollout/shared/core/run"
	"rollout/shared/record"
	files "rollout/shared/rollout"
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
	const tickets = 240
	want, sum := runCalmly(t, refunds(t, tickets))
	if sum.Rollout.Accepted < 2 || len(want) < 10 {
		t.Fatalf("the undisturbed run learnt nothing: %+v, %d files", sum.Rollout, len(want))
	}
	for seed := range uint64(2) {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			t.Parallel()
			wantSameWhenKilled(t, 200+seed, refunds(t, tickets), sum, want)
		})
	}
}

// runCalmly runs the tickets in a file with one worker and no kills, and returns the files
// of the run and its summary.
func runCalmly(t *testing.T, file string) (map[string]string, record.Summary) {
	t.Helper()
	calm := install(t, serve(t, "--clerk").url, 0, smallShards)
	id := calm.submit(file)
	if s := calm.awaitEnd(id); s.Phase != run.Completed {
		t.Fatalf("the undisturbed run is %s: %s", s.Phase, s.Message)
	}
	files, sum := calm.rolloutFiles(id), calm.outcome(id).Summary
	calm.up.signal(15)
	calm.up.wantExit(0)
	return files, sum
}

// wantSameWhenKilled runs the tickets in a file with three workers, kills processes at three
// random moments, and compares the files with those of an undisturbed run.
func wantSameWhenKilled(t *testing.T, seed uint64, file string, calm record.Summary, want map[string]string) {
	t.Helper()
	const kills = 3
	requests := uint64(0)
	for _, r := range calm.Roles {
		requests += r.Items
	}
	s := serve(t, "--clerk", "--latency", "15ms", "--spread", "0.8")
	m := &processKiller{testInstallation: install(t, s.url, 3, smallShards), llm: s,
		rng: rand.New(rand.NewPCG(seed, 0)), killed: map[int]bool{}}
	id := m.submit(file)
	for range kills {
		m.killRandomly(id, requests)
	}
	if got := m.awaitEnd(id); got.Phase != run.Completed {
		t.Fatalf("the run is %s: %s", got.Phase, got.Message)
	}
	wantSameFiles(t, m.rolloutFiles(id), want)
}

// bookings writes tickets of two kinds, each of which needs a rule that harms the other, with
// a config by which a plan adds one rule at a time; and returns the file of the tickets.
func bookings(t *testing.T, pareto int) string {
	t.Helper()
	file := refunds(t, 0)
	config := strings.TrimSuffix(file, "jsonl") + "toml"
	write(t, config, strings.NewReplacer("\ncandidates = 2\n", fmt.Sprintf("\nmax_operations = 1\npareto = %d\n", pareto),
		"seed = 1\n", "seed = 2\n").Replace(read(t, config)))
	var tickets strings.Builder
	for n := range 240 {
		content, label := clerk.Cancellation(n)
		fmt.Fprintf(&tickets, "{\"group_id\":\"b%d\",\"content\":%q,\"label\":%q}\n", n, content, label)
	}
	return write(t, file, tickets.String())
}

// Two kinds of tickets need different rules, of which each alone is no better than none. A
// rollout with a front keeps the half that it has and finds the other one; without a front
// it learns nothing. Killed processes change nothing of this.
func TestFrontLearnsWhatNeedsTwoSteps(t *testing.T) {
	t.Parallel()
	without, sum := runCalmly(t, bookings(t, 0))
	if sum.Rollout.Accepted > 0 || sum.Rollout.Reflections < 2 || without[files.FrontsFile] != "" {
		t.Errorf("without a front the run has %+v", sum.Rollout)
	}
	want, sum := runCalmly(t, bookings(t, 4))
	m := sum.Rollout.Missions["refunds"]
	if sum.Rollout.Accepted == 0 || m.Holdout == nil || *m.Holdout < *m.HoldoutAtStart+0.3 {
		t.Errorf("with a front the run has %+v, and of the mission %+v", sum.Rollout, m)
	}
	rows := lines(t, want[files.FrontsFile])
	if len(rows) < 2 || !strings.Contains(want[files.ReflectionFile], `"parent":"r`) {
		t.Errorf("no reflection begins with a candidate: %v", rows)
	}
	for seed := range uint64(2) {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			t.Parallel()
			wantSameWhenKilled(t, 300+seed, bookings(t, 4), sum, want)
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
