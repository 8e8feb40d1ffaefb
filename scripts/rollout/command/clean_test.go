package command_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"rollout/shared/core/identity"
	"rollout/shared/core/run"
	"rollout/shared/core/shard"
	"rollout/shared/host/hosttest"
	"rollout/shared/record"
)

// checkClean runs a command line of clean and checks its output, which ends with what is kept in the bucket and how
// large the state is.
func (f fixture) checkClean(args []string, out, kept string) {
	f.t.Helper()
	r := f.rollout(args...)
	last := strings.LastIndex(strings.TrimSuffix(r.out, "\n"), "\n") + 1
	if r.code != 0 || r.err != "" {
		f.t.Errorf("exit code %d, stderr %s", r.code, r.err)
	}
	if d := cmp.Diff(out, r.out[:last]); d != "" {
		f.t.Errorf("%v (-want +got):\n%s", args, d)
	}
	if line := r.out[last:]; !strings.HasPrefix(line, "kept: "+kept+", ") || !strings.HasSuffix(line, "KiB of state\n") {
		f.t.Errorf("%v: want %q, and the state, in: %s", args, kept, line)
	}
}

// answerAll makes a run one without failed items.
func (f fixture) answerAll(id identity.RunID) {
	f.t.Helper()
	key := record.CoordinatorKey(id)
	s := hosttest.Load[run.State](f.t, f.Ports, key)
	s.Counts = shard.Counts{OK: 100}
	f.save(key, s)
}

func TestCleanKeepsRunsThatCanBeRetried(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.addRun(runA, "nightly", time.Minute, run.Running)
	f.addRun(runB, "weekly", 48*time.Hour, run.Completed)
	f.answerAll(runB)
	f.addRun(runC, "mixed", time.Hour, run.CompletedWithErrors)
	for _, key := range []string{"prompts/weekly.jsonl", "runs/" + string(runB) + "/completions.jsonl",
		"work/" + string(runA) + "/shards/0/0-1-x", "work/" + string(runB) + "/shards/0/0-1-x",
		"work/" + string(runB) + "/plan/000000.json", "work/" + string(runC) + "/plan/000000.json"} {
		f.put(key, "1234")
	}
	const hint = "kept: 1 run with items that failed or have no answer, for `rollout retry`: name them, or use --all\n"
	f.checkClean([]string{"clean", "--dry-run"}, string(runB)+"  weekly  would free 8 B in 2 objects\n"+
		"would free 8 B in 2 objects\n"+hint, "4 B in runs/, 4 B in prompts/, 8 B in work/")
	f.checkClean([]string{"clean", "--dry-run", "--older-than", "3d"}, "nothing to clean: would free 0 B in 0 objects\n",
		"4 B in runs/, 4 B in prompts/, 16 B in work/")
	f.checkClean([]string{"clean", "--dry-run", "mixed"}, string(runC)+"  mixed  would free 4 B in 1 object; "+
		"it can't be retried afterwards (2 failed)\nwould free 4 B in 1 object\n",
		"4 B in runs/, 4 B in prompts/, 12 B in work/")
	var got struct {
		DryRun bool `json:"dry_run"`
		Runs   []struct {
			Run    string `json:"run_id"`
			Bytes  int64
			Failed int
			Kept   string
		}
		Freed struct{ Objects, Bytes int64 }
	}
	if err := json.Unmarshal([]byte(f.rollout("clean", "--json").out), &got); err != nil {
		t.Fatal(err)
	}
	if len(got.Runs) != 2 || got.DryRun || got.Freed.Bytes != 8 || got.Freed.Objects != 2 {
		t.Errorf("%+v", got)
	}
	for _, r := range got.Runs {
		if want := map[string]string{string(runB): "", string(runC): "unanswered"}[r.Run]; r.Kept != want || r.Bytes == 0 {
			t.Errorf("%+v, want it kept as %q", r, want)
		}
	}
	f.checkClean([]string{"clean"}, "nothing to clean: freed 0 B in 0 objects\n"+hint,
		"4 B in runs/, 4 B in prompts/, 8 B in work/")
	f.checkClean([]string{"clean", "--all"}, string(runC)+"  mixed  freed 4 B in 1 object; "+
		"it can't be retried afterwards (2 failed)\nfreed 4 B in 1 object\n", "4 B in runs/, 4 B in prompts/, 4 B in work/")
	for key, there := range map[string]bool{
		"prompts/weekly.jsonl": true, "runs/" + string(runB) + "/completions.jsonl": true,
		"work/" + string(runA) + "/shards/0/0-1-x": true, "work/" + string(runB) + "/plan/000000.json": false,
		"work/" + string(runC) + "/plan/000000.json": false,
	} {
		if _, err := f.Bucket.Stat(t.Context(), key, ""); (err == nil) != there {
			t.Errorf("%s: %v, want it there: %t", key, err, there)
		}
	}
}

func TestCleanRefusesWhatItCannotDelete(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.addRun(runA, "nightly", time.Minute, run.Running)
	check(t, f.rollout("clean", "nightly"), 1, "", "run "+string(runA)+" has not ended: it is running")
	check(t, f.rollout("clean", "--older-than", "soon"), 2, "", `--older-than "soon" is not a duration`)
	check(t, f.rollout("clean", "--all", "nightly"), 2, "", "leave them out, or the names")
}

// B retries A, which has all its answers, and has failed items: it is kept, and so is A, whose plan it reads.
func TestCleanKeepsAncestorsOfKeptRuns(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.addRun(runA, "first", 72*time.Hour, run.Completed)
	f.answerAll(runA)
	f.addRun(runB, "again", 48*time.Hour, run.CompletedWithErrors)
	f.addRun(runC, "other", 48*time.Hour, run.Completed)
	f.answerAll(runC)
	m := hosttest.Load[record.Manifest](t, f.Ports, record.ManifestKey(runB))
	m.Parent = &record.Parent{Run: runA, Selection: record.Selection{Finish: []string{"length"}}}
	f.save(record.ManifestKey(runB), m)
	for _, id := range []identity.RunID{runA, runB, runC} {
		f.put("work/"+string(id)+"/plan/000000.json", "1234")
	}
	check(t, f.rollout("clean", string(runC), string(runA)), 1, "", "run "+string(runB)+" retries run "+string(runA))
	if _, err := f.Bucket.Stat(t.Context(), "work/"+string(runC)+"/plan/000000.json", ""); err != nil {
		t.Errorf("a refused clean has deleted: %v", err)
	}
	for _, flags := range [][]string{{"clean"}, {"clean", "--all", "--older-than", "60h"}} {
		if r := f.rollout(flags...); r.code != 0 || strings.Contains(r.out, string(runA)) {
			t.Errorf("%v: %+v", flags, r)
		}
		if _, err := f.Bucket.Stat(t.Context(), "work/"+string(runA)+"/plan/000000.json", ""); err != nil {
			t.Errorf("%v: the plan that the kept retry reads is gone: %v", flags, err)
		}
	}
	if r := f.rollout("clean", string(runA), string(runB)); !strings.Contains(r.out, "\nfreed 8 B in 2 objects\n") {
		t.Errorf("both are named: %+v", r)
	}
}
