package e2e

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"rollout/shared/core/identity"
	"rollout/shared/core/run"
	"rollout/shared/record"
)

const (
	trainingConfig = `schema_version = 1
kind = "train"
[algorithm.sft]
base_model = "rollout/tiny"
minibatch_size = 1
[algorithm.sft.optimizer]
lr = 1e-3
[algorithm.sft.budget]
max_steps = 48
[snapshot]
every_steps = 4
keep_last = 2
`
	trainingRows = `{"messages":[{"role":"user","content":"Who made the heaven?"},` +
		`{"role":"assistant","content":"In the beginning God created the heaven."}]}
{"prompt":"And the light ","completion":"was good."}
{"prompt":"And there was ","completion":"evening."}
`
	// The snapshot of a drain fits into this budget on a busy machine, too.
	trainingInstallation = `
[worker]
drain_budget = "30s"
`
)

// Two workers are killed in turn, the run is paused and resumed, and `rollout
// up` drains between two steps. The training ends with the bytes of an
// undisturbed training.
func TestTrainingRunSurvivesKillsPauseAndDrain(t *testing.T) {
	t.Parallel()
	file := write(t, filepath.Join(t.TempDir(), "training.jsonl"), trainingRows)
	write(t, strings.TrimSuffix(file, ".jsonl")+".toml", trainingConfig)

	whole := install(t, "mock", 0, trainingInstallation)
	id := whole.submit(file)
	whole.awaitEnd(id)
	want := trainingSummary(t, whole, id)
	if want.Steps != 48 || want.Snapshot == "" || want.Loss <= 0 {
		t.Fatalf("the undisturbed training ended with %+v", want)
	}
	whole.up.signal(syscall.SIGTERM)
	whole.up.wantExit(0)

	i := install(t, "mock", 1, trainingInstallation)
	id = i.submit(file)
	killed := i.killTrainer(id, 4, 0)
	i.killTrainer(id, 12, killed)
	i.awaitSnapshot(id, 20)
	i.control("pause", id)
	paused := i.await(id, run.Paused)
	if paused.Training == nil || paused.Training.SnapshotStep != paused.Training.Step ||
		paused.Training.TokensPerSecond != nil {
		t.Errorf("the paused training is %+v, want a snapshot of its last step", paused.Training)
	}
	i.control("resume", id)
	i.awaitSnapshot(id, paused.Training.Step+4)
	i.up.signal(syscall.SIGTERM)
	i.up.wantExit(0)
	i.start()
	if s := i.awaitEnd(id); s.Phase != run.Completed {
		t.Fatalf("the run ended as %s (%s), want completed", s.Phase, s.Message)
	}
	got := trainingSummary(t, i, id)
	if a, b := asJSON(t, got), asJSON(t, want); a != b {
		t.Errorf("the training ended with\n%s, want the undisturbed\n%s", a, b)
	}
	for _, f := range got.Files {
		if b := read(t, i.bucket(record.OutputKey(id, f.Name))); identity.TextContent(b).String() != f.Content {
			t.Errorf("%s has other bytes than its digest in the summary", f.Name)
		}
	}
	do(t, 0, "snapshot", "restore", got.Snapshot, filepath.Join(t.TempDir(), "state"), "--dir", i.dir)
	shown := do(t, 0, "status", string(id), "--dir", i.dir).stdoutText()
	if !strings.Contains(shown, "step 48/48 100%, loss ") || !strings.Contains(shown, got.Snapshot) {
		t.Errorf("status shows\n%s", shown)
	}
}

func TestTrainingRunReportsInvalidLinesAndModels(t *testing.T) {
	t.Parallel()
	i := install(t, "mock", 0, trainingInstallation)
	file := write(t, filepath.Join(t.TempDir(), "bad.jsonl"), trainingRows+"{\"prompt\":1}\n")
	write(t, strings.TrimSuffix(file, ".jsonl")+".toml", trainingConfig)
	id := i.submit(file)
	if s := i.awaitEnd(id); s.Phase != run.CompletedWithErrors || s.FailedByClass["invalid_line"] != 1 {
		t.Errorf("the run ended as %s, failed %v; want completed_with_errors and one invalid_line", s.Phase, s.FailedByClass)
	}
	errs := read(t, i.bucket(record.OutputKey(id, record.ErrorsFile)))
	if !strings.Contains(errs, "prompts/bad.jsonl:4: ") {
		t.Errorf("errors.jsonl does not name line 4 of prompts/bad.jsonl: %s", errs)
	}
	other := write(t, filepath.Join(t.TempDir(), "other.jsonl"), trainingRows)
	write(t, strings.TrimSuffix(other, ".jsonl")+".toml",
		strings.Replace(trainingConfig, "rollout/tiny", "meta-llama/Llama-3.2-1B", 1))
	do(t, 2, "submit", other, "--dir", i.dir).wantStderr("meta-llama/Llama-3.2-1B", "can't be trained here",
		"a trainer outside rollout")
}

// killTrainer waits for a snapshot of the step or a later one and kills the
// worker that then trains, unless it is the process before. It returns the
// process id.
func (i *testInstallation) killTrainer(id identity.RunID, step, before int) (pid int) {
	i.t.Helper()
	i.awaitSnapshot(id, step)
	eventually(i.t, "a worker holds the training", func() bool {
		for _, w := range i.aliveWorkers() {
			if len(w.Holds) == 1 && w.Holds[0].Run == id && w.PID != before {
				pid = w.PID
				return syscall.Kill(pid, syscall.SIGKILL) == nil
			}
		}
		return false
	})
	return pid
}

// awaitSnapshot waits for a snapshot of the step or a later one.
func (i *testInstallation) awaitSnapshot(id identity.RunID, step int) {
	i.t.Helper()
	eventually(i.t, "the training has a snapshot", func() bool {
		s, ok := i.show(id)
		if ok && s.Phase.Ended() {
			i.t.Fatalf("the training ended before step %d was seen: give it more steps", step)
		}
		return ok && s.Training != nil && s.Training.SnapshotStep >= step
	})
}

// trainingSummary reads the training's part of an ended run's summary.
func trainingSummary(t *testing.T, i *testInstallation, id identity.RunID) record.Trained {
	t.Helper()
	var s record.Summary
	if err := json.Unmarshal([]byte(read(t, i.bucket(record.OutputKey(id, record.SummaryFile)))), &s); err != nil {
		t.Fatal(err)
	}
	if s.Training == nil {
		t.Fatalf("the summary has no training: %+v", s)
	}
	return *s.Training
}

func asJSON(t *testing.T, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
