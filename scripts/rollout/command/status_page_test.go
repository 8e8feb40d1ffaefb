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
		"--since 2099-01-01T00:00:00Z": 0,
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
