package command_test

import (
	"os"
	"path/filepath"
	"testing"

	"rollout/shared/core/identity"
	"rollout/shared/core/run"
	"rollout/shared/record"
)

// addResults stores an ended run with two completions and one failure.
func (f fixture) addResults(id identity.RunID) {
	f.t.Helper()
	f.addEndedRun(id, run.CompletedWithErrors)
	f.put(record.OutputKey(id, record.CompletionsFile), "{\"id\":\"a\"}\n{\"id\":\"b\"}\n")
	f.put(record.OutputKey(id, record.ErrorsFile), "{\"id\":\"c\"}\n")
	f.put(record.OutputKey(id, record.SummaryFile),
		string(record.Encode(record.Summary{Schema: record.Schema, Run: id, Items: 3, Completed: 2, Failed: 1}))+"\n")
}

func TestResultsWritesCompletions(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.addEndedRun(runA, run.Completed)
	f.put(record.OutputKey(runA, record.CompletionsFile), "{\"id\":\"a\"}\n")
	f.put(record.OutputKey(runA, record.SummaryFile),
		string(record.Encode(record.Summary{Schema: record.Schema, Run: runA, Items: 1, Completed: 1})))
	check(t, f.rollout("results", "x"), 0, "{\"id\":\"a\"}\n")
	path := filepath.Join(t.TempDir(), "y.jsonl")
	check(t, f.rollout("results", "x", "-o", path), 0, "", path)
	if got, err := os.ReadFile(path); string(got) != "{\"id\":\"a\"}\n" {
		t.Errorf("%q, %v", got, err)
	}
}

func TestResultsOfRunWithFailuresExitsWith1(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.addResults(runA)
	failed := "1 of 1 item failed (see " + filepath.Join(f.dir, "bucket", record.OutputKey(runA, record.ErrorsFile)) +
		"; `rollout retry " + string(runA) + " --dir " + f.dir + "` asks them again)"
	check(t, f.rollout("results", "x"), 1, "{\"id\":\"a\"}\n{\"id\":\"b\"}\n", failed)
	check(t, f.rollout("results", "x", "--errors"), 1, "{\"id\":\"c\"}\n", failed)
	folder := filepath.Join(t.TempDir(), "new") + "/"
	check(t, f.rollout("results", "x", "-o", folder), 1, "", failed, folder+"errors.jsonl")
	for _, name := range []string{record.CompletionsFile, record.ErrorsFile, record.SummaryFile} {
		if _, err := os.Stat(filepath.Join(folder, name)); err != nil {
			t.Error(err)
		}
	}
	check(t, f.rollout("results", "x", "-o", folder), 2, "", "completions.jsonl already exists")
}

func TestResultsChecksNumberOfRows(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.addResults(runA)
	f.put(record.OutputKey(runA, record.CompletionsFile), "{\"id\":\"a\"}\n")
	path := filepath.Join(t.TempDir(), "y.jsonl")
	check(t, f.rollout("results", "x", "-o", path), 3, "", "completions.jsonl has 1 row, but the run's summary counts 2")
	if entries, err := os.ReadDir(filepath.Dir(path)); err != nil || len(entries) > 0 {
		t.Errorf("left behind: %v (%v)", entries, err)
	}
}

func TestResultsNeedAnEndedRun(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.addRun(runB, "going", 0, run.Running)
	check(t, f.rollout("results", "going"), 1, "",
		"run "+string(runB)+" has not ended: it is running "+
			"(read what it has with --partial, or wait for it with `rollout status "+string(runB)+" --watch --dir "+f.dir+"`)")
	f.addEndedRun(runA, run.Completed)
	check(t, f.rollout("results", string(runA)), 1, "", "its summary is missing")
	check(t, f.rollout("results", string(runA), "--errors", "-o", t.TempDir()), 1, "", "its summary is missing")
	check(t, f.rollout("results"), 2, "", "RUN is missing")
}

func TestResultsOfTrainingNeedAFolder(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.addEndedRun(runA, run.Completed)
	f.put(record.OutputKey(runA, record.ModelFile), "weights")
	f.put(record.OutputKey(runA, record.SummaryFile),
		string(record.Encode(record.Summary{Schema: record.Schema, Run: runA, Items: 1, Completed: 1,
			Training: &record.Trained{}})))
	check(t, f.rollout("results", "x"), 2, "", "name a folder with --output, such as x/")
	folder := t.TempDir()
	check(t, f.rollout("results", "x", "-o", folder), 0, "", record.ModelFile)
}

// Users can copy the commands in error messages.
func TestErrorsNameCompleteCommands(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	check(t, f.rollout("results", "typo"), 1, "", "(`rollout status --dir "+f.dir+"` lists the runs)")
	check(t, f.rollout("results"), 2, "", "(see `rollout results --help`)")
	check(t, rollout(t.Context(), "pause", "x"), 2, "", "name the folder that `rollout up` runs in")
}
