package e2e

import (
	"fmt"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"rollout/localstack/scenarios"
	"rollout/shared/core/run"
)

// The error of the second `rollout up` names the process of the first, which
// goes on.
func TestSecondUpOnOneFolderIsRefused(t *testing.T) {
	t.Parallel()
	file := promptsFile(t, scenarios.MixedPrompts(160))
	want := undisturbed(t, file)
	s := serveSlowly(t, 30*time.Millisecond)
	i := install(t, s.url, 1, smallShards)
	id := i.submit(file)
	eventually(t, "the run is under way", func() bool { return s.requests() > 10 })
	second := do(t, 2, "up", "--dir", i.dir, "--engine", s.url, "--listen", "off")
	pid := strconv.Itoa(i.up.cmd.Process.Pid)
	second.wantStderr("process "+pid+" already runs the installation", "another folder")
	i.awaitEnd(id)
	wantSame(t, i.outcome(id), want)
}

// A paused run stays paused.
func TestUpAfterACrashResumesOpenRuns(t *testing.T) {
	t.Parallel()
	file := promptsFile(t, scenarios.MixedPrompts(160))
	other := write(t, filepath.Join(t.TempDir(), "other.jsonl"), scenarios.MixedPrompts(200))
	want, wantOther := undisturbed(t, file), undisturbed(t, other)
	s := serveSlowly(t, 30*time.Millisecond)
	i := install(t, s.url, 0, smallShards)
	paused := i.submit(file)
	eventually(t, "the first run is under way", func() bool { return s.requests() > 10 })
	i.control("pause", paused)
	i.await(paused, run.Paused, run.Interrupted)
	from := s.requests()
	open := i.submit(other)
	eventually(t, "the second run is under way", func() bool { return s.requests() > from+10 })
	i.up.killGroup()
	i.start()
	i.awaitEnd(open)
	wantSame(t, i.outcome(open), wantOther)
	if p, _ := i.show(paused); p.Phase != run.Paused {
		t.Errorf("the paused run is %s", p.Phase)
	}
	i.control("resume", paused)
	i.awaitEnd(paused)
	wantSame(t, i.outcome(paused), want)
}

// The error names the limit of open files and the number needed. With fewer
// requests at once the same command works.
func TestTooFewOpenFilesIsRefusedAtTheStart(t *testing.T) {
	t.Parallel()
	s := serve(t)
	i := install(t, s.url, 0, smallShards) // in_flight = 4
	i.up.signal(15)
	i.up.wantExit(0)
	id := i.submit(promptsFile(t, simplePrompts(60)))
	limited := func(files int, program, args string) *process {
		return shell(t, fmt.Sprintf("ulimit -n %d && exec %q %s --dir %q --engine %q",
			files, filepath.Join(binaries, program), args, i.dir, s.url))
	}
	for _, command := range [][2]string{
		{rollout, "up --listen off"}, {rollout, "up --listen off --workers 2"}, {gpuworker, ""},
	} {
		p := limited(60, command[0], command[1])
		p.wantExit(2)
		p.wantStderr("in_flight = 4 needs 68 open files", "may have 60", "ulimit -n 68")
	}
	limited(80, rollout, "up --once --listen off").wantExit(0)
	i.start()
	if r, _ := i.show(id); r.Phase != run.Completed || r.Items.Done != 60 {
		t.Errorf("the run is %s with %d answers, want completed with 60", r.Phase, r.Items.Done)
	}
}
