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
	lessonConfig = `schema_version = 1
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
	lessonRows = `{"messages":[{"role":"user","content":"Who made the heaven?"},{"role":"assistant","content":"In the beginning God created the heaven."}]}
{"prompt":"And the light ","completion":"was good."}
{"prompt":"And there was ","completion":"evening."}
`
	// A snapshot at a drain must fit into its budget on a crowded machine, too.
	lessonInstallation = `
[worker]
drain_budget = "30s"
`
)

// Two workers die in turn, the run is paused and resumed, and `rollout up`
// drains amid steps: the training ends with the bytes of one that nothing
// happens to.
func TestARunThatTrainsSurvivesItsWorkers(t *testing.T) {
	t.Parallel()
	file := write(t, filepath.Join(t.TempDir(), "lesson.jsonl"), lessonRows)
	write(t, strings.TrimSuffix(file, ".jsonl")+".toml", lessonConfig)

	calm := install(t, "mock", 0, lessonInstallation)
	id := calm.submit(file)
	calm.ends(id)
	want := trained(t, calm, id)
	if want.Steps != 48 || want.Snapshot == "" || want.Loss <= 0 {
		t.Fatalf("undisturbed: %+v", want)
	}
	calm.up.signal(syscall.SIGTERM)
	calm.up.wantExit(0)

	i := install(t, "mock", 1, lessonInstallation)
	id = i.submit(file)
	killed := i.killTrainer(id, 4, 0)
	i.killTrainer(id, 12, killed)
	i.reaches(id, 20)
	i.steer("pause", id)
	paused := i.await(id, run.Paused)
	if paused.Training == nil || paused.Training.SnapshotStep != paused.Training.Step || paused.Training.TokensPerSecond != nil {
		t.Errorf("paused: %+v", paused.Training)
	}
	i.steer("resume", id)
	i.reaches(id, paused.Training.Step+4)
	i.up.signal(syscall.SIGTERM)
	i.up.wantExit(0)
	i.start()
	if s := i.ends(id); s.Phase != run.Completed {
		t.Fatalf("it ended as %s: %s", s.Phase, s.Message)
	}
	got := trained(t, i, id)
	if a, b := asJSON(t, got), asJSON(t, want); a != b {
		t.Errorf("it ends with\n%s, undisturbed with\n%s", a, b)
	}
	for _, f := range got.Files {
		if b := read(t, i.bucket(record.OutputKey(id, f.Name))); identity.TextContent(b).String() != f.Content {
			t.Errorf("%s has other bytes than its row says", f.Name)
		}
	}
	do(t, 0, "snapshot", "restore", got.Snapshot, filepath.Join(t.TempDir(), "state"), "--dir", i.dir)
	if shown := do(t, 0, "status", string(id), "--dir", i.dir).stdoutText(); !strings.Contains(shown, "step 48/48 100%, loss ") || !strings.Contains(shown, got.Snapshot) {
		t.Errorf("status shows\n%s", shown)
	}
}

func TestARunThatCanNotTrainSaysWhy(t *testing.T) {
	t.Parallel()
	i := install(t, "mock", 0, lessonInstallation)
	file := write(t, filepath.Join(t.TempDir(), "bad.jsonl"), lessonRows+"{\"prompt\":1}\n")
	write(t, strings.TrimSuffix(file, ".jsonl")+".toml", lessonConfig)
	id := i.submit(file)
	if s := i.ends(id); s.Phase != run.CompletedWithErrors || s.FailedByClass["invalid_line"] != 1 {
		t.Errorf("it ended as %s, %v", s.Phase, s.FailedByClass)
	}
	if errs := read(t, i.bucket(record.OutputKey(id, record.ErrorsFile))); !strings.Contains(errs, "prompts/bad.jsonl:4: ") {
		t.Errorf("errors: %s", errs)
	}
	other := write(t, filepath.Join(t.TempDir(), "other.jsonl"), lessonRows)
	write(t, strings.TrimSuffix(other, ".jsonl")+".toml", strings.Replace(lessonConfig, "rollout/tiny", "meta-llama/Llama-3.2-1B", 1))
	do(t, 2, "submit", other, "--dir", i.dir).wantStderr("meta-llama/Llama-3.2-1B", "can't be trained here", "a trainer outside rollout")
}

// killTrainer waits for a snapshot of that step or a later one and kills the
// worker that has the run then, unless it was killed before. It returns its
// process.
func (i *testInstallation) killTrainer(id identity.RunID, step, before int) (pid int) {
	i.t.Helper()
	i.reaches(id, step)
	eventually(i.t, "a worker has the training", func() bool {
		for _, w := range i.living() {
			if len(w.Holds) == 1 && w.Holds[0].Run == id && w.PID != before {
				pid = w.PID
				return syscall.Kill(pid, syscall.SIGKILL) == nil
			}
		}
		return false
	})
	return pid
}

// reaches waits for a snapshot of that step or a later one.
func (i *testInstallation) reaches(id identity.RunID, step int) {
	i.t.Helper()
	eventually(i.t, "the training has a snapshot", func() bool {
		s, ok := i.show(id)
		if ok && s.Phase.Ended() {
			i.t.Fatalf("the training was over before step %d was seen: give it more steps", step)
		}
		return ok && s.Training != nil && s.Training.SnapshotStep >= step
	})
}

func trained(t *testing.T, i *testInstallation, id identity.RunID) record.Trained {
	t.Helper()
	var s record.Summary
	if err := json.Unmarshal([]byte(read(t, i.bucket(record.OutputKey(id, record.SummaryFile)))), &s); err != nil {
		t.Fatal(err)
	}
	if s.Training == nil {
		t.Fatalf("the summary tells nothing of the training: %+v", s)
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
