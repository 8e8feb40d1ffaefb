package e2e

import (
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"rollout/shared/core/run"
)

// One folder has one `rollout up`: a second is refused and named the first,
// which goes on unharmed.
func TestTwoUpsOnOneFolder(t *testing.T) {
	t.Parallel()
	file := promptsFile(t, mixedPrompts(160))
	want := undisturbed(t, file)
	s := serveSlowly(t, 30*time.Millisecond)
	i := install(t, s.url, 1, smallBites)
	id := i.submit(file)
	eventually(t, "the run is under way", func() bool { return s.requests() > 10 })
	second := do(t, 2, "up", "--dir", i.dir, "--engine", s.url, "--listen", "off")
	second.wantStderr("process "+strconv.Itoa(i.up.cmd.Process.Pid)+" already runs the installation", "another folder")
	i.ends(id)
	wantSame(t, i.outcome(id), want)
}

// A new `up` takes up the runs that the killed one left open, the paused ones
// excepted.
func TestUpAfterACrashResumesOpenRuns(t *testing.T) {
	t.Parallel()
	file, other := promptsFile(t, mixedPrompts(160)), write(t, filepath.Join(t.TempDir(), "other.jsonl"), mixedPrompts(200))
	want, wantOther := undisturbed(t, file), undisturbed(t, other)
	s := serveSlowly(t, 30*time.Millisecond)
	i := install(t, s.url, 0, smallBites)
	paused := i.submit(file)
	eventually(t, "the first run is under way", func() bool { return s.requests() > 10 })
	i.steer("pause", paused)
	i.await(paused, run.Paused)
	from := s.requests()
	open := i.submit(other)
	eventually(t, "the second run is under way", func() bool { return s.requests() > from+10 })
	i.up.crash()
	i.start()
	i.ends(open)
	wantSame(t, i.outcome(open), wantOther)
	if p, _ := i.show(paused); p.Phase != run.Paused {
		t.Errorf("the paused run is %s", p.Phase)
	}
	i.steer("resume", paused)
	i.ends(paused)
	wantSame(t, i.outcome(paused), want)
}
