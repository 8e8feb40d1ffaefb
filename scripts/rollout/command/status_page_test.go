package command_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"rollout/shared/core/identity"
	"rollout/shared/core/run"
)

func TestStatusShowsAPageOfEndedRuns(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for i := range 25 {
		f.addRun(identity.RunID(fmt.Sprintf("01JD%022d", i)), fmt.Sprintf("night-%02d", i), time.Minute, run.Completed)
	}
	for flags, want := range map[string]int{
		"": 20, "--limit 3": 3, "--all": 25, "--since 2026-01-01": 25, "--since 24h": 25, "--since 24h --limit 5": 5,
		"--since 2099-01-01T00:00:00Z": 0, "--since 2d": 25, "--since yesterday": 25, "--since 1d12h --limit 4": 4,
	} {
		r := f.rollout(append([]string{"status"}, strings.Fields(flags)...)...)
		if r.code != 0 || strings.Count(r.out, "night-") != want {
			t.Errorf("status %s: %d with\n%s%s", flags, r.code, r.out, r.err)
		}
		more := fmt.Sprintf("%d more runs ended earlier: see `rollout status --all --dir", 25-want)
		if strings.Contains(r.out, more) != (want < 25) {
			t.Errorf("status %s: %s, want %q: %t", flags, r.out, more, want < 25)
		}
	}
	for flags, says := range map[string]string{
		"--limit 0":        "--limit 0 is not a number of runs from 1 on",
		"--since yore":     `--since "yore" is not a time`,
		"--all --limit 10": "--all shows all ended runs",
	} {
		check(t, f.rollout(append([]string{"status"}, strings.Fields(flags)...)...), 2, "", says)
	}
}

func TestStatusFindsRunsByAPartOfTheirNames(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.addRun(runA, "big-sample", time.Hour, run.Completed)
	f.addRun(runB, "Big", time.Minute, run.Running)
	f.addRun(runC, "hello", 2*time.Hour, run.Stopped)
	for flags, want := range map[string]string{
		"--name big": "Big big-sample", "--name ello": "hello", "--name big --limit 1": "Big big-sample", "--name o": "hello",
	} {
		r := f.rollout(append([]string{"status"}, strings.Fields(flags)...)...)
		var names []string
		for _, line := range strings.Split(r.out, "\n") {
			if fields := strings.Fields(line); len(fields) > 1 && identity.RunID(fields[0]).Valid() {
				names = append(names, fields[1])
			}
		}
		if got := strings.Join(names, " "); r.code != 0 || got != want {
			t.Errorf("status %s: %q, want %q", flags, got, want)
		}
	}
	if r := f.rollout("status", "--name", "x"); r.code != 0 || r.out != "no run has \"x\" in its name\n" {
		t.Errorf("%+v", r)
	}
	check(t, f.rollout("status", "bi"), 1, "", `there is no run "bi"; runs with that in their names: Big, big-sample`)
	check(t, f.rollout("status", "Big", "--name", "big"), 2, "", "--name chooses among all runs")
	if r := f.rollout("status", "--name", "hello", "--json"); !strings.Contains(r.out, `"at_fault":2`) {
		t.Errorf("the JSON lacks at_fault: %s", r.out)
	}
}

func TestStatusShowsOpenRunsFirst(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.addRun(runA, "open", 3*time.Hour, run.Running)
	f.addRun(runB, "ended", time.Minute, run.Completed)
	r := f.rollout("status")
	if open, ended := strings.Index(r.out, "  open  "), strings.Index(r.out, "  ended  "); open < 0 || open > ended {
		t.Errorf("the open run is not the first:\n%s", r.out)
	}
}
