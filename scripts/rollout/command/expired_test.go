package command_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"rollout/functions/reclaim"
	"rollout/shared/clock"
	"rollout/shared/core/identity"
	"rollout/shared/core/run"
	"rollout/shared/host"
	"rollout/shared/record"
)

// expireAll deletes the documents of all ended runs.
func (f fixture) expireAll() {
	f.t.Helper()
	err := reclaim.New(f.Ports, host.Timings(f.Deployment.Health)).BuildIndex(f.t.Context(), 0)
	for _, later := range []time.Duration{2 * time.Hour, 3 * time.Hour} {
		p := f.Ports
		p.Clock = clock.Skewed{Offset: later}
		e := reclaim.NewExpirer(p, reclaim.ExpireOptions{Keep: time.Hour, WorkFiles: true})
		err = errors.Join(err, e.ExpireAll(f.t.Context()))
	}
	if err != nil {
		f.t.Fatal(err)
	}
}

// Of a run that has expired, results are read by its id, and every other command says what
// happened and where its files are.
func TestCommandsSayThatARunHasExpired(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.addResults(runA)
	f.put(record.WorkPrefix+string(runA)+"/plan/000000.cuts", "x")
	f.expireAll()
	f.addRun("01JE2ZQ4T5W0M1X9YB7R3K8CVF", "other", time.Minute, run.Completed)

	status := f.rollout("status")
	files := filepath.Join(f.dir, "bucket", "runs")
	if status.code != 0 || !strings.Contains(status.out, "1 older run expired: see the files in "+files) {
		t.Errorf("status: %+v", status)
	}
	says := []string{"run " + string(runA) + ` ("x") ended on `,
		" as completed with errors, and its documents have expired",
		"its files are in runs/" + string(runA) + "/: `rollout results " + string(runA) + " --dir "}
	for _, text := range []string{string(runA), strings.ToLower(string(runA)), string(runA)[:20]} {
		commands := [][]string{{"status"}, {"explain"}, {"retry"}, {"stop"}, {"show", "", "0"}, {"plan"}, {"bundle"}}
		for _, command := range commands {
			args := append([]string{command[0], text}, command[min(2, len(command)):]...)
			check(t, f.rollout(args...), 2, "", says...)
		}
		failed := "1 of 3 items failed (see " + filepath.Join(files, string(runA), record.ErrorsFile) + ")"
		check(t, f.rollout("results", text), 1, "{\"id\":\"a\"}\n{\"id\":\"b\"}\n", failed)
		check(t, f.rollout("results", text, "--follow"), 1, "{\"id\":\"a\"}\n{\"id\":\"b\"}\n", failed)
	}
	check(t, f.rollout("results", "x"), 1, "", `there is no run "x"`, "1 older run expired: name such a run by its id")

	if _, err := os.Stat(filepath.Join(f.dir, "bucket", "work", string(runA))); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("its work files are left: %v", err)
	}
	if err := os.RemoveAll(filepath.Join(files, string(runA))); err != nil {
		t.Fatal(err)
	}
	check(t, f.rollout("results", string(runA)), 2, "", says...)
}

// A file whose run has expired may be submitted again, and is a new run.
func TestFileOfAnExpiredRunCanBeSubmittedAgain(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	file := f.file("x.jsonl", "{\"prompt\":\"1\"}\n")
	first := f.rollout("submit", file)
	id := identity.RunID(strings.TrimSpace(first.out))
	if first.code != 0 || !id.Valid() {
		t.Fatalf("%+v", first)
	}
	f.addEndedRun(id, run.Completed)
	f.expireAll()
	again := f.rollout("submit", file)
	if other := identity.RunID(strings.TrimSpace(again.out)); again.code != 0 || !other.Valid() || other == id {
		t.Errorf("%+v", again)
	}
	check(t, f.rollout("status", string(id)), 2, "", "its documents have expired")
}
