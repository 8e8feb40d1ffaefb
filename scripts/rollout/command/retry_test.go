package command_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"rollout/events"
	"rollout/functions/api"
	"rollout/shared/config"
	"rollout/shared/core/identity"
	"rollout/shared/core/run"
	"rollout/shared/dialect"
	"rollout/shared/host"
	"rollout/shared/host/hosttest"
	"rollout/shared/input/inputtest"
	"rollout/shared/record"
)

// addWholeRun stores runA as an ended run with its plan and its files.
func (f fixture) addWholeRun() {
	f.t.Helper()
	m := inputtest.Manifest(2)
	m.Run, m.Name, m.CreatedAt = runA, "nightly", noon
	inputtest.Plan(f.t, f.Ports, m, inputtest.Prompts(0, 4))
	f.addRun(runA, "nightly", time.Minute, run.CompletedWithErrors)
	m = hosttest.Load[record.Manifest](f.t, f.Ports, record.ManifestKey(runA))
	m.Config, m.Dialect = config.DefaultRun(), string(dialect.Plain)
	f.save(record.ManifestKey(runA), m)
	for _, key := range []string{record.FileEntriesKey(runA), record.OutputKey(runA, record.CompletionsFile),
		record.OutputKey(runA, record.ErrorsFile)} {
		f.put(key, "x")
	}
}

// requested receives the retries that were asked for.
func (f fixture) requested() (out []events.RetryRequested) {
	f.t.Helper()
	ms, err := f.Ports.Queues.Receive(f.t.Context(), host.TaskQueue, 100, time.Minute, 0)
	if err != nil {
		f.t.Fatal(err)
	}
	for _, m := range ms {
		_, p, err := events.Decode(m.Body)
		if r, ok := p.(events.RetryRequested); err == nil && ok {
			out = append(out, r)
		}
	}
	return out
}

func TestRetryPrintsTheNewRun(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		args []string
		want events.RetryRequested
	}{
		{[]string{"nightly"}, events.RetryRequested{Only: []string{"failed"}}},
		{[]string{string(runA), "--class", "too_long,timeout"}, events.RetryRequested{Only: []string{"too_long", "timeout"}}},
		{[]string{strings.ToLower(string(runA))[:8], "--all"}, events.RetryRequested{Only: []string{"all"}}},
		{[]string{"nightly", "--class", "too_long", "--unanswered"},
			events.RetryRequested{Only: []string{"too_long", "unanswered"}}},
		{[]string{"nightly", "--finish-reason", "stop", "--set", "sampling.max_tokens=800", "--set", "sampling.top_k=1"},
			events.RetryRequested{FinishReasons: []string{"stop"},
				Set: []string{"sampling.max_tokens=800", "sampling.top_k=1"}}},
	} {
		f := newFixture(t)
		f.addWholeRun()
		args := append([]string{"retry"}, c.args...)
		r := f.rollout(args...)
		id := identity.RunID(strings.TrimSuffix(r.out, "\n"))
		if r.code != 0 || r.err != "" || !id.Valid() || id == runA {
			t.Errorf("%v: %+v", c.args, r)
		}
		sent := f.requested()
		c.want.Run, c.want.Parent = string(id), string(runA)
		if diff := cmp.Diff([]events.RetryRequested{c.want}, sent, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%v: what it asks for (-want +got):\n%s", c.args, diff)
		}
		var child api.Retry
		r = f.rollout(append(args, "--json")...)
		if err := json.Unmarshal([]byte(r.out), &child); err != nil || r.code != 0 || child.Run != id ||
			child.Parent != runA || strings.Count(r.out, "\n") != 1 {
			t.Errorf("%v with --json: %+v, %v", c.args, r, err)
		}
	}
}

func TestRetryRefuses(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.addWholeRun()
	f.addRun(runB, "weekly", time.Hour, run.Running)
	f.addRun(runC, "cleaned", time.Hour, run.CompletedWithErrors)
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"nightly", "--class", "sad"}, 2, `"sad" selects no item (use failed, unanswered, unscored, all, `},
		{[]string{"nightly", "--finish-reason", ","}, 2, "is not a finish reason"},
		{[]string{"nightly", "--finish-reason", "length"}, 1, "has no item to ask again: selected is finish reason length"},
		{[]string{"nightly", "--set", "sampling.top_p=2"}, 2, "--set: sampling.top_p: must be"},
		{[]string{"nightly", "--set", "model.uri=other"}, 2, "a retry can't set model.uri (set keys of sampling, "},
		{[]string{"nightly", "--class", "refused"}, 1,
			"run " + string(runA) + " has no item to ask again: selected is refused"},
		{[]string{"weekly"}, 1, "run " + string(runB) + " has not ended (wait for its end, or stop it)"},
		{[]string{"cleaned"}, 1, "is gone (submit the input again: `rollout clean --dir "},
		{[]string{"hourly"}, 1, "there is no run \"hourly\""},
		{nil, 2, "RUN is missing (see `rollout retry --help`)"},
		{[]string{"nightly", "weekly"}, 2, `unexpected argument "weekly"`},
	} {
		for _, form := range [][]string{nil, {"--json"}} {
			args := append(append([]string{"retry"}, c.args...), form...)
			check(t, f.rollout(args...), c.code, "", c.want)
		}
	}
	if sent := f.requested(); len(sent) > 0 {
		t.Errorf("it asks for %+v", sent)
	}
}

func TestStatusNamesTheRunThatAChildRetries(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.addRun(runA, "nightly", time.Hour, run.Running)
	m := hosttest.Load[record.Manifest](t, f.Ports, record.ManifestKey(runA))
	m.Parent = &record.Parent{Run: runB, Selection: record.Selection{Only: []string{"timeout", "engine"}}}
	f.save(record.ManifestKey(runA), m)
	want := "\nretry of    " + string(runB) + " (timeout, engine)\n"
	if r := f.rollout("status", string(runA)); !strings.Contains(r.out, want) {
		t.Errorf("the run lacks %q:\n%s", want, r.out)
	}
}

// The work files of all ancestors of an open run stay: it reads its parent's, and the
// plan of the oldest. They go when it has ended.
func TestCleanKeepsWhatAnOpenChildReads(t *testing.T) {
	t.Parallel()
	const other = identity.RunID("0ZJD2ZQ4T5W0M1X9YB7R3K8CVH")
	f := newFixture(t)
	f.addRun(runA, "nightly", 3*time.Hour, run.CompletedWithErrors)
	f.addRun(runB, "nightly", 2*time.Hour, run.CompletedWithErrors)
	f.addRun(runC, "nightly", time.Hour, run.Running)
	f.addRun(other, "sibling", time.Hour, run.Stopped)
	for child, of := range map[identity.RunID]identity.RunID{runB: runA, runC: runB, other: runA} {
		m := hosttest.Load[record.Manifest](t, f.Ports, record.ManifestKey(child))
		m.Parent = &record.Parent{Run: of, Selection: record.Selection{Only: []string{"failed"}}}
		f.save(record.ManifestKey(child), m)
	}
	for _, id := range []identity.RunID{runA, runB, runC, other} {
		f.put(record.InheritedKey(id), "1234")
	}
	f.checkClean([]string{"clean", "--all"}, string(other)+"  sibling  freed 4 B in 1 object; "+
		"it can't be retried afterwards (2 failed)\nfreed 4 B in 1 object\n", "0 B in runs/, 0 B in prompts/, 12 B in work/")
	check(t, f.rollout("clean", string(runA)), 1, "", " retries run "+string(runA)+" and reads its files")
	f.end(runC, run.Completed)
	r := f.rollout("clean", "--all")
	if r.code != 0 || !strings.Contains(r.out, "\nfreed 12 B in 3 objects\n") {
		t.Errorf("when the child has ended: %+v", r)
	}
}

// end ends a run.
func (f fixture) end(id identity.RunID, p run.Phase) {
	f.t.Helper()
	s := hosttest.Load[run.State](f.t, f.Ports, record.CoordinatorKey(id))
	s.Phase, s.EndedAt = p, noon
	f.save(record.CoordinatorKey(id), s)
}
