package e2e

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

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

// amend starts a child of trials that adds to them, and returns it when it has ended.
func (i *testInstallation) amend(id identity.RunID, flags ...string) identity.RunID {
	i.t.Helper()
	p := do(i.t, 0, append([]string{"amend", "--dir", i.dir, string(id)}, flags...)...)
	child := identity.RunID(strings.TrimSpace(p.stdoutText()))
	i.await(child, run.CompletedWithErrors)
	return child
}

// wantSameTrials checks that two runs have the same trials with the same outcomes, whatever the
// order in which they were asked, and the same report, number for number.
func (i *testInstallation) wantSameTrials(got, want identity.RunID) {
	i.t.Helper()
	a, b := i.facts(got), i.facts(want)
	for id, f := range b {
		g := a[id]
		g.Index, f.Index = 0, 0
		if diff := cmp.Diff(f, g); diff != "" {
			i.t.Errorf("%s (-want +got)\n%s", id, diff)
		}
	}
	if len(a) != len(b) {
		i.t.Errorf("run %s has %d trials, and run %s %d", got, len(a), want, len(b))
	}
	if diff := cmp.Diff(i.report(want), i.report(got)); diff != "" {
		i.t.Errorf("the reports differ (-want +got)\n%s", diff)
	}
}

// report returns the report of trials without what is the run's own.
func (i *testInstallation) report(id identity.RunID) string {
	i.t.Helper()
	var out map[string]any
	text := do(i.t, 0, "report", "--dir", i.dir, "--json", string(id)).stdoutText()
	if err := json.Unmarshal([]byte(text), &out); err != nil {
		i.t.Fatal(err)
	}
	for _, own := range []string{"run_id", "name", "ended_at", "cost_usd"} {
		delete(out, own)
	}
	b, err := json.MarshalIndent(out, "", " ")
	if err != nil {
		i.t.Fatal(err)
	}
	return string(b)
}

// TestAmendedTrialsAreThoseOfAWholeRun amends three replications to five: two new trials of each
// task and variant are asked, and the report is that of a run with five from the beginning. A
// further amendment adds a variant and a task, and the result is again that of a whole run. The
// trials are begun in a random order, which is another one in each design.
func TestAmendedTrialsAreThoseOfAWholeRun(t *testing.T) {
	t.Parallel()
	j := newJudgeServer(t, 2*time.Millisecond)
	i := install(t, j.URL, 0, patientHealth+"[worker]\nin_flight = 16\n")
	config := func(replications int) string {
		return strings.Replace(trialsConfig, "replications = 2\n", fmt.Sprintf("replications = %d\norder = \"random\"\n",
			replications), 1)
	}
	three := i.submit(tasksFile(t, config(3)))
	i.await(three, run.CompletedWithErrors)
	dry := do(t, 0, "amend", "--dir", i.dir, "--dry-run", string(three), "--replications", "5").stdoutText()
	if want := "120 new trials of 300: 20 tasks, 3 variants, 5 replications; the others are kept\n"; dry != want {
		t.Errorf("the dry run says %q, want %q", dry, want)
	}
	before := j.requests()
	amended := i.amend(three, "--replications", "5")
	asked := j.asked(before)
	if len(asked) != taskCount*3*2 {
		t.Errorf("%d trials were asked, want 2 of each task and variant", len(asked))
	}
	for what, n := range asked {
		if n != 1 {
			t.Errorf("%s was asked %d times", what, n)
		}
	}
	five := i.submit(tasksFile(t, config(5)))
	i.await(five, run.CompletedWithErrors)
	i.wantSameTrials(amended, five)

	dir := t.TempDir()
	variant := write(t, filepath.Join(dir, "polite.toml"), "[[variant]]\nname = \"polite\"\nsystem = \"Be polite.\"\n")
	more := write(t, filepath.Join(dir, "more.jsonl"),
		`{"id":"q3","prompt":"case 3","target":"`+sentinel+`","session":"s3"}`+"\n"+
			`{"id":"q99","prompt":"case 99","target":"x","session":"s9"}`+"\n")
	before = j.requests()
	again := i.amend(amended, "--variant", variant, "--tasks", more)
	if n := j.requests() - before; n != 21*4*5-20*3*5 {
		t.Errorf("%d trials were asked", n)
	}
	changed := write(t, filepath.Join(dir, "changed.jsonl"), `{"id":"q3","prompt":"case 4","target":"x"}`+"\n")
	agent := write(t, filepath.Join(dir, "agent.toml"), "[[variant]]\nname = \"agent\"\ncommand = [\"./agent\"]\n")
	for flags, want := range map[string]string{
		"--dry-run --variant " + agent: "this installation does not permit programs of runs",
		"--tasks " + changed:           `another task "q3"`,
		"--replications 5":             "must be more than the 5 that the run has",
		"--variant " + variant:         `"polite" is the name of an earlier variant`,
		"--tasks " + more:              "has all tasks of more.jsonl already",
		"":                             "the amendment adds nothing",
		"--replications 6 --set sampling.top_p=0.5": "an amendment can't set sampling.top_p",
	} {
		args := append([]string{"amend", "--dir", i.dir, string(again)}, strings.Fields(flags)...)
		if out := do(t, 2, args...).stderrText(); !strings.Contains(out, want) {
			t.Errorf("%s: %s", flags, out)
		}
	}

	// The folder keeps one version of a file: from here on the input of the others is gone.
	file := tasksFile(t, config(5)+read(t, variant))
	write(t, file, read(t, file)+strings.SplitAfter(read(t, more), "\n")[1])
	all := i.submit(file)
	i.await(all, run.CompletedWithErrors)
	i.wantSameTrials(again, all)
	before = j.requests()
	retried := i.retryTrials(again, run.CompletedWithErrors, "--trial", "t20.polite.r4", "--trial", "t0.plain.r0",
		"--trial", "t0.plain.r4")
	if n := j.requests() - before; n != 3 {
		t.Errorf("%d trials were asked again", n)
	}
	i.wantSameTrials(retried, all)
	show := do(t, 0, "show", "--dir", i.dir, string(retried), "t20.polite.r4").stdoutText()
	if !strings.Contains(show, "case 99") {
		t.Errorf("a trial that was added is shown as %s", show)
	}
}

// TestReplacedWorkerRepeatsOnlyWhatWasInFlight kills a worker without notice. Another one takes its
// place, and asks again what the killed one had in flight, and nothing that it had committed.
func TestReplacedWorkerRepeatsOnlyWhatWasInFlight(t *testing.T) {
	t.Parallel()
	j := newJudgeServer(t, 20*time.Millisecond)
	m := &processKiller{testInstallation: install(t, j.URL, 2, smallShards), rng: rand.New(rand.NewPCG(1, 1)),
		killed: map[int]bool{}}
	id := m.submit(tasksFile(t, trialsConfig))
	eventually(t, "some trials are asked", func() bool { return j.requests() >= 40 })
	m.killWorker(id)
	m.awaitEnd(id)
	again := 0
	for _, n := range j.asked(0) {
		again += n - 1
	}
	// A trial that the killed worker had committed is not lost, and not asked again.
	lost := m.times("shard_lost")
	if trials := j.requests() - again; trials != taskCount*trialsOfATask || again > lost {
		t.Errorf("%d trials were asked, %d of them again; %d were lost", trials, again, lost)
	}
}
