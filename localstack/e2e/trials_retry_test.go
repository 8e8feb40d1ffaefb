package e2e

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"rollout/shared/core/identity"
	"rollout/shared/core/run"
	"rollout/shared/trials"
)

// limitedTrials is trialsConfig with limits and chains, which hold for retries too.
var limitedTrials = strings.Replace(trialsConfig, "seed = 7\n",
	"seed = 7\nmax_concurrency = 5\nchain = \"session\"\n", 1)

// retryTrials starts a child of trials, and returns it when it has ended.
func (i *testInstallation) retryTrials(id identity.RunID, end run.Phase, flags ...string) identity.RunID {
	i.t.Helper()
	p := do(i.t, 0, append([]string{"retry", "--dir", i.dir, string(id)}, flags...)...)
	child := identity.RunID(strings.TrimSpace(p.stdoutText()))
	i.await(child, end)
	return child
}

// facts returns the rows of trials.jsonl by trial.
func (i *testInstallation) facts(id identity.RunID) map[string]trials.Fact {
	i.t.Helper()
	out := map[string]trials.Fact{}
	for _, line := range lines(i.t, read(i.t, i.bucket(filepath.Join("runs", string(id), trials.TrialsFile)))) {
		var f trials.Fact
		if err := json.Unmarshal([]byte(line), &f); err != nil {
			i.t.Fatal(err)
		}
		out[f.ID] = f
	}
	return out
}

// TestRetryOfStoppedTrialsAsksWhatHasNoScore stops trials in their middle. A retry asks those that
// the stop left, within the limits of the run, and has the files of a run that was not stopped.
func TestRetryOfStoppedTrialsAsksWhatHasNoScore(t *testing.T) {
	t.Parallel()
	j := newJudgeServer(t, 10*time.Millisecond)
	i := install(t, j.URL, 0, patientHealth+"[worker]\nin_flight = 16\n")
	file := tasksFile(t, limitedTrials)
	whole := i.submit(file)
	i.await(whole, run.CompletedWithErrors)
	want := i.trialsFiles(whole)
	stopped := i.submit(file)
	until := j.requests() + 30
	eventually(t, "some trials are asked", func() bool { return j.requests() >= until })
	do(t, 0, "stop", "--dir", i.dir, string(stopped))
	i.await(stopped, run.Stopped)
	left := 0
	for _, f := range i.facts(stopped) {
		if f.Verdict == trials.Infrastructure {
			left++
		}
	}
	if left == 0 || left > taskCount*trialsOfATask-20 {
		t.Fatalf("the stop left %d trials", left)
	}
	before := j.requests()
	child := i.retryTrials(stopped, run.CompletedWithErrors, "--unscored")
	if n := j.requests() - before; n != left {
		t.Errorf("%d trials were asked, and the stop left %d", n, left)
	}
	wantSameFiles(t, i.trialsFiles(child), want)
	if n := j.mostAtOnce(); n > 5 {
		t.Errorf("%d trials were in flight at once, and max_concurrency is 5", n)
	}

	before = j.requests()
	again := i.retryTrials(child, run.CompletedWithErrors, "--trial", "t3.plain.r1", "--trial", "t7.asked.r0")
	if n := j.requests() - before; n != 2 {
		t.Errorf("%d trials were asked, and two were named", n)
	}
	wantSameFiles(t, i.trialsFiles(again), want)
	out := do(t, 2, "retry", "--dir", i.dir, string(child), "--trial", "t99.plain.r0").stderrText()
	if !strings.Contains(out, `has no trial "t99.plain.r0"`) {
		t.Errorf("an unknown trial: %s", out)
	}
}
