package deployed

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"rollout/localstack/gcp/iam"
	"rollout/localstack/scenarios"
	"rollout/localstack/subprocess"
	"rollout/shared/core/identity"
	"rollout/shared/core/shard"
	"rollout/shared/host"
	"rollout/shared/record"
	"rollout/shared/snapshot"
)

// trainer is the name of the account of machines that train.
const trainer = "trainer"

// TestGrantsOfTrainers trains through what infra/gcp plans, with the account that
// it gives machines of a training pool. A worker is killed after the first snapshot, and the
// other one removes those that newer ones replace. The files are those of `rollout up`, byte
// for byte; an operator lists, restores and prunes the snapshots. Nothing is denied, and each
// grant of the account is needed.
func TestGrantsOfTrainers(t *testing.T) {
	f := newFixture(t, deployment+"[[pool]]\nname = \"trainers\"\nmodel = \"rollout/tiny\"\nexecutor = \"train\"\n",
		map[string]any{"operators": []string{"user:" + operator}})
	f.Policy.Needed() // and forget what the deployment needed
	var run identity.RunID
	var want map[string]string
	for minibatches := 8; ; minibatches *= 4 { // a step that is over too soon can't be interrupted
		j := job{key: fmt.Sprintf("prompts/training-%d.jsonl", minibatches), lines: scenarios.TrainingRows,
			toml: strings.Replace(scenarios.TrainingConfig(minibatches), "every_steps = 5", "every_steps = 3", 1)}
		var second *process
		if run, second = f.interrupt(t, j); f.attempt(t, run) > 1 {
			want = f.local(t, "mock", j)
			break
		}
		t.Logf("the training %s ended before it was interrupted", run)
		second.kill() // it would take the next one
	}
	scenarios.WantFiles(t, f.Ports.Blobs, run, want)
	f.prunes(t, run, want[record.ModelFile])
	for _, d := range f.Policy.Denied() {
		t.Errorf("the plan lacks a grant: %v", d)
	}
	needed := f.Policy.Needed()
	for _, g := range f.Policy.Grants() {
		if g.Member == memberOf(f.AccountOf(f.Deployment.Cloud.Name+"-"+trainer)) && !neededOtherwise(g) &&
			!slices.Contains(needed, g.Address) {
			t.Errorf("no training needs the grant %s", g.Address)
		}
	}
}

// interrupt submits a training and kills its worker after the first snapshot. It returns the run
// when it has ended, and the worker that came then.
func (f *fixture) interrupt(t *testing.T, j job) (run identity.RunID, second *process) {
	t.Helper()
	first := f.trainer(t)
	run = f.submit(t, j)
	f.eventually(t, "the training has a snapshot", func() bool {
		page, err := f.Ports.Docs.List(t.Context(), snapshot.Key(run, ""), "", 10)
		return err == nil && len(page) > 0
	})
	first.kill()
	second = f.trainer(t)
	f.awaitEnd(t, run)
	return run, second
}

// attempt returns the attempt by which the only shard of a run ended.
func (f *fixture) attempt(t *testing.T, run identity.RunID) uint64 {
	t.Helper()
	var doc shard.Doc
	if _, _, err := host.Load(t.Context(), f.Ports.Docs, identity.ShardKey(run, 0), &doc); err != nil {
		t.Fatal(err)
	}
	return doc.Attempt
}

// neededOtherwise reports whether a machine needs the grant before and after its work, or for
// messages that it can't read, or to be told that an object is absent, which Cloud Storage
// otherwise forbids to read. TestGrants tests these for machines that answer prompts.
func neededOtherwise(g iam.Grant) bool {
	return strings.Contains(g.Address, ".leave[") || strings.Contains(g.Address, ".programs[") ||
		strings.Contains(g.Resource, "-dead") || strings.Contains(g.Address, "-objects_list\"]")
}

// prunes lets an operator work with the snapshots of a training, and checks the weights.
func (f *fixture) prunes(t *testing.T, run identity.RunID, weights string) {
	t.Helper()
	to := filepath.Join(t.TempDir(), "state")
	all := f.snapshots(t, run)
	oldest := all[len(all)-1].ID
	for _, arguments := range [][]string{{"list", "--run", string(run)}, {"show", oldest},
		{"restore", oldest, to}, {"prune", "--run", string(run), "--keep-last", "0"}} {
		if err := f.rollout(t.Context(), operator, append([]string{"snapshot"}, arguments...)...); err != nil {
			t.Errorf("snapshot %v: %v", arguments, err)
		}
	}
	if left := f.snapshots(t, run); len(left) != 1 || left[0].Label == "" {
		t.Errorf("after a prune there are %v, want the labeled one of the end", left)
	}
	if err := f.rollout(t.Context(), operator, "snapshot", "restore", f.snapshots(t, run)[0].ID, to+"-end"); err != nil {
		t.Error(err)
	}
	if text, err := os.ReadFile(filepath.Join(to+"-end", record.ModelFile)); err != nil || string(text) != weights {
		t.Errorf("the restored weights have %d bytes, %v, want the %d of the run", len(text), err, len(weights))
	}
}

// snapshots are those of a run, the newest first.
func (f *fixture) snapshots(t *testing.T, run identity.RunID) []snapshot.Snapshot {
	t.Helper()
	s := snapshot.Store{Blobs: f.Ports.Blobs, Docs: f.Ports.Docs, Clock: f.Ports.Clock}
	all, err := s.List(t.Context(), snapshot.Filter{Run: run})
	if err != nil || len(all) == 0 {
		t.Fatalf("the snapshots are %v, %v", all, err)
	}
	return all
}

// trainer starts a worker of the training pool, with the account that the plan gives its
// machines, until the test ends.
func (f *fixture) trainer(t *testing.T) *process {
	t.Helper()
	account := ""
	for _, m := range f.Plan.Of("google_compute_region_instance_template") {
		if strings.Contains(m.Address, "\"trainers-") {
			account = m.Values.Block("service_account").Text("email")
		}
	}
	cmd := f.Program(t, account, program(t, "gpuworker"), "--cloud", "gcp", "--pool", "trainers")
	cmd.Env = append(cmd.Env, "ROLLOUT_CONFIG="+f.text)
	return f.run(t, cmd)
}

// run runs a program until the test ends.
func (f *fixture) run(t *testing.T, cmd *exec.Cmd) *process {
	t.Helper()
	p := &process{cmd, make(chan struct{})}
	if err := subprocess.Start(cmd); err != nil {
		t.Fatal(err)
	}
	go func() {
		_ = cmd.Wait() // it is killed
		close(p.ended)
	}()
	t.Cleanup(p.kill)
	return p
}
