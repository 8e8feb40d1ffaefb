package command_test

import (
	"os"
	"path/filepath"
	"testing"

	"rollout/shared/core/identity"
	"rollout/shared/core/run"
	"rollout/shared/record"
)

// answeredTwo puts a run there that has ended: two answers, one failure.
func (b bench) answeredTwo(id identity.RunID) {
	b.t.Helper()
	b.ends(id, run.CompletedWithErrors)
	b.put(record.OutputKey(id, record.CompletionsFile), "{\"id\":\"a\"}\n{\"id\":\"b\"}\n")
	b.put(record.OutputKey(id, record.ErrorsFile), "{\"id\":\"c\"}\n")
	b.put(record.OutputKey(id, record.SummaryFile), string(record.Encode(record.Summary{Schema: record.Schema, Run: id, Items: 3, Completed: 2, Failed: 1}))+"\n")
}

func TestResultsWritesTheAnswers(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.ends(runA, run.Completed)
	b.put(record.OutputKey(runA, record.CompletionsFile), "{\"id\":\"a\"}\n")
	b.put(record.OutputKey(runA, record.SummaryFile), string(record.Encode(record.Summary{Schema: record.Schema, Run: runA, Items: 1, Completed: 1})))
	check(t, rollout(t.Context(), "results", "x", "--dir", b.dir), 0, "{\"id\":\"a\"}\n")
	path := filepath.Join(t.TempDir(), "y.jsonl")
	check(t, rollout(t.Context(), "results", "x", "-o", path, "--dir", b.dir), 0, "", path)
	if got, err := os.ReadFile(path); string(got) != "{\"id\":\"a\"}\n" {
		t.Errorf("%q, %v", got, err)
	}
}

func TestResultsOfARunWithFailuresExitWith1(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.answeredTwo(runA)
	failed := "1 of 1 items failed (see " + filepath.Join(b.dir, "bucket", record.OutputKey(runA, record.ErrorsFile)) + ")"
	check(t, rollout(t.Context(), "results", "x", "--dir", b.dir), 1, "{\"id\":\"a\"}\n{\"id\":\"b\"}\n", failed)
	check(t, rollout(t.Context(), "results", "x", "--errors", "--dir", b.dir), 1, "{\"id\":\"c\"}\n", failed)
	folder := filepath.Join(t.TempDir(), "new") + "/"
	check(t, rollout(t.Context(), "results", "x", "-o", folder, "--dir", b.dir), 1, "", failed, folder+"errors.jsonl")
	for _, name := range []string{record.CompletionsFile, record.ErrorsFile, record.SummaryFile} {
		if _, err := os.Stat(filepath.Join(folder, name)); err != nil {
			t.Error(err)
		}
	}
	check(t, rollout(t.Context(), "results", "x", "-o", folder, "--dir", b.dir), 2, "", "completions.jsonl already exists")
}

func TestResultsKnowsWhatARunHasToHave(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.answeredTwo(runA)
	b.put(record.OutputKey(runA, record.CompletionsFile), "{\"id\":\"a\"}\n")
	path := filepath.Join(t.TempDir(), "y.jsonl")
	check(t, rollout(t.Context(), "results", "x", "-o", path, "--dir", b.dir), 3, "", "completions.jsonl has 1 rows, but the run's summary counts 2")
	if entries, err := os.ReadDir(filepath.Dir(path)); err != nil || len(entries) > 0 {
		t.Errorf("it left %v there (%v)", entries, err)
	}
}

func TestResultsAreOfRunsThatHaveEnded(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.has(runB, "going", 0, run.Running)
	check(t, rollout(t.Context(), "results", "going", "--dir", b.dir), 1, "", "run "+string(runB)+" has not ended: it is running (wait for it with `rollout status "+string(runB)+" --watch --dir "+b.dir+"`)")
	b.ends(runA, run.Completed)
	check(t, rollout(t.Context(), "results", string(runA), "--dir", b.dir), 1, "", "its summary is missing")
	check(t, rollout(t.Context(), "results", string(runA), "--errors", "-o", t.TempDir(), "--dir", b.dir), 1, "", "its summary is missing")
	check(t, rollout(t.Context(), "results", "--dir", b.dir), 2, "", "RUN is missing")
}

func TestATrainingsResultsAreAFolder(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.ends(runA, run.Completed)
	b.put(record.OutputKey(runA, record.ModelFile), "weights")
	b.put(record.OutputKey(runA, record.SummaryFile), string(record.Encode(record.Summary{Schema: record.Schema, Run: runA, Items: 1, Completed: 1, Training: &record.Trained{}})))
	check(t, rollout(t.Context(), "results", "x", "--dir", b.dir), 2, "", "name a folder with --output, such as x/")
	folder := t.TempDir()
	check(t, rollout(t.Context(), "results", "x", "-o", folder, "--dir", b.dir), 0, "", record.ModelFile)
}

// What an error says to do can be copied.
func TestErrorsNameCommandsForTheSameInstallation(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	check(t, rollout(t.Context(), "results", "typo", "--dir", b.dir), 1, "", "(`rollout status --dir "+b.dir+"` lists the runs)")
	check(t, rollout(t.Context(), "results", "--dir", b.dir), 2, "", "(see `rollout results --help`)")
	check(t, rollout(t.Context(), "pause", "x"), 2, "", "name the folder that `rollout up` runs in")
}
