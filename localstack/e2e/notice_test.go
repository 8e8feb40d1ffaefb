package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"syscall"
	"testing"
	"time"

	"rollout/localstack/scenarios"
)

// notice writes a preemption notice where a local worker looks for it.
func (i *testInstallation) notice(reason string, lead time.Duration) {
	i.t.Helper()
	temp := write(i.t, i.noticeFile()+".new", fmt.Sprintf(`{"reason":%q,"lead_seconds":%g}`, reason, lead.Seconds()))
	if err := os.Rename(temp, i.noticeFile()); err != nil {
		i.t.Fatal(err)
	}
}

func (i *testInstallation) noticeFile() string { return filepath.Join(i.dir, "state", "notice") }

// Whatever the lead of a notice, the worker drains within it and ends with code
// 0, and the run goes on with the next worker.
func TestC28WorkerDrainsWithinTheLeadOfANotice(t *testing.T) {
	t.Parallel()
	// Enough for three times the 2 s that a notice may stay unseen.
	file := promptsFile(t, scenarios.MixedPrompts(1200))
	want := undisturbed(t, file)
	s := serveSlowly(t, 50*time.Millisecond)
	i := install(t, s.url, 0, smallShards)
	id := i.submit(file)
	for _, lead := range []time.Duration{120 * time.Second, 3 * time.Second, 0} {
		from := s.requests()
		eventually(t, "the run is under way", func() bool { return s.requests() > from+30 })
		i.notice("spot", lead)
		i.up.wantExit(0)
		if !i.logged("worker_draining", "spot") {
			t.Errorf("the log does not report the notice with a lead of %s", lead)
		}
		if err := os.Remove(i.noticeFile()); err != nil {
			t.Fatal(err)
		}
		i.start()
	}
	i.awaitEnd(id)
	wantSame(t, i.outcome(id), want)
}

var drains = regexp.MustCompile(`worker_draining worker=(\w+)`)

// Five notices and five signals at once cause one drain.
func TestC29FiveNoticesAreOneDrain(t *testing.T) {
	t.Parallel()
	file := promptsFile(t, scenarios.MixedPrompts(320))
	want := undisturbed(t, file)
	s := serveSlowly(t, 50*time.Millisecond)
	i := install(t, s.url, 0, patientHealth+smallShards)
	w := launch(t, gpuworker, "--dir", i.dir, "--engine", s.url)
	id := i.submit(file)
	eventually(t, "both workers hold shards", func() bool { _, _, ok := i.twoBusy(); return ok })
	for n := range 5 {
		i.notice(fmt.Sprintf("spot %d", n), 30*time.Second)
		w.signal(syscall.SIGTERM)
		i.up.signal(syscall.SIGTERM)
	}
	for _, p := range []*process{w, i.up} {
		p.wantExit(0)
		if d := drains.FindAllString(p.stderrText(), -1); len(d) != 1 {
			t.Errorf("%s drained %d times: %v", p.name, len(d), d)
		}
	}
	if err := os.Remove(i.noticeFile()); err != nil {
		t.Fatal(err)
	}
	i.start()
	i.awaitEnd(id)
	wantSame(t, i.outcome(id), want)
}

// `up` ends in order on signals: while it waits for its engine, when they
// repeat, and when the terminal closes.
func TestSignalsEndProcessesInOrder(t *testing.T) {
	t.Parallel()
	t.Run("before the engine answers", func(t *testing.T) {
		t.Parallel()
		dir := t.TempDir() // up makes the installation that the worker joins
		for _, program := range [][]string{{rollout, "up", "--listen", "off"}, {gpuworker}} {
			p := launch(t, program[0], append(program[1:], "--dir", dir, "--engine", "http://127.0.0.1:1/v1")...)
			eventually(t, "its state exists", func() bool { return exists(filepath.Join(dir, "state", "state.db")) })
			// gpuworker creates the state before it handles signals. Until then a
			// signal ends it at once.
			eventually(t, "it ends", func() bool { p.signal(syscall.SIGTERM); return p.ended() })
			if code := p.exit(); code > 0 {
				t.Errorf("%s ended with exit code %d: %s", p.name, code, p.stderrText())
			}
		}
	})
	t.Run("many signals", func(t *testing.T) {
		t.Parallel()
		file := promptsFile(t, scenarios.MixedPrompts(160))
		want := undisturbed(t, file)
		s := serveSlowly(t, 50*time.Millisecond)
		i := install(t, s.url, 2, smallShards)
		id := i.submit(file)
		eventually(t, "the run is under way", func() bool { return s.requests() > 20 })
		for !i.up.ended() {
			i.up.signal(syscall.SIGTERM)
		}
		i.up.wantExit(0)
		i.start()
		i.awaitEnd(id)
		wantSame(t, i.outcome(id), want)
	})
	t.Run("the terminal is closed", func(t *testing.T) {
		t.Parallel()
		s := serveSlowly(t, 50*time.Millisecond)
		i := install(t, s.url, 0, smallShards)
		i.submit(promptsFile(t, scenarios.MixedPrompts(320)))
		eventually(t, "the run is under way", func() bool { return s.requests() > 20 })
		i.up.signal(syscall.SIGHUP)
		i.up.wantExit(0)
		i.up.wantStderr("worker_draining", "worker_deregistered")
	})
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// A run goes on when the reader of its events ends (`| head -1`) and when the
// standard streams are closed.
func TestRunNeedsNoReaderOfItsOutput(t *testing.T) {
	t.Parallel()
	file := promptsFile(t, scenarios.MixedPrompts(160))
	want := undisturbed(t, file)
	s := serve(t)
	i := install(t, s.url, 0, smallShards)
	i.up.signal(syscall.SIGTERM)
	i.up.wantExit(0)
	id := i.submit(file)
	for _, streams := range []string{`| head -1`, `<&- >&- 2>&-`} {
		line := fmt.Sprintf("%q up --once --events --dir %q --engine %q --listen off %s",
			filepath.Join(binaries, rollout), i.dir, s.url, streams)
		p := shell(t, line)
		p.wantExit(0)
	}
	i.up = nil
	i.start()
	i.awaitEnd(id)
	wantSame(t, i.outcome(id), want)
}
