package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"syscall"
	"testing"
	"time"
)

// notice puts a preemption notice where a laptop's machine looks for it.
func (i *testInstallation) notice(reason string, lead time.Duration) {
	i.t.Helper()
	temp := write(i.t, i.noticeFile()+".new", fmt.Sprintf(`{"reason":%q,"lead_seconds":%g}`, reason, lead.Seconds()))
	if err := os.Rename(temp, i.noticeFile()); err != nil {
		i.t.Fatal(err)
	}
}

func (i *testInstallation) noticeFile() string { return filepath.Join(i.dir, "state", "notice") }

// Whatever lead a notice leaves, the worker drains within it and ends
// well, and the run goes on with the next one.
func TestC28NoticesOfEveryLead(t *testing.T) {
	t.Parallel()
	file := promptsFile(t, mixedPrompts(320))
	want := undisturbed(t, file)
	s := serveSlowly(t, 50*time.Millisecond)
	i := install(t, s.url, 0, smallBites)
	id := i.submit(file)
	for _, lead := range []time.Duration{120 * time.Second, 3 * time.Second, 0} {
		from := s.requests()
		eventually(t, "the run is under way", func() bool { return s.requests() > from+30 })
		i.notice("spot", lead)
		i.up.wantExit(0)
		if !i.logged("worker_draining", "spot") {
			t.Errorf("nothing is said of the notice %s ahead", lead)
		}
		if err := os.Remove(i.noticeFile()); err != nil {
			t.Fatal(err)
		}
		i.start()
	}
	i.ends(id)
	wantSame(t, i.outcome(id), want)
}

var drains = regexp.MustCompile(`worker_draining worker=(\w+)`)

// Five notices, and as many signals, at once are one drain.
func TestC29FiveNoticesAreOneDrain(t *testing.T) {
	t.Parallel()
	file := promptsFile(t, mixedPrompts(320))
	want := undisturbed(t, file)
	s := serveSlowly(t, 50*time.Millisecond)
	i := install(t, s.url, 0, smallBites)
	w := launch(t, gpuworker, "--dir", i.dir, "--engine", s.url)
	id := i.submit(file)
	eventually(t, "both workers are at work", func() bool { _, _, ok := i.twoBusy(); return ok })
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
	i.ends(id)
	wantSame(t, i.outcome(id), want)
}

// Signals at any time end `up` well: while it waits for its engine, again and
// again, and with the terminal.
func TestSignalsAtAnyTime(t *testing.T) {
	t.Parallel()
	t.Run("before the engine answers", func(t *testing.T) {
		t.Parallel()
		dir := t.TempDir() // up makes the installation that the worker joins
		for _, program := range [][]string{{rollout, "up", "--listen", "off"}, {gpuworker}} {
			p := launch(t, program[0], append(program[1:], "--dir", dir, "--engine", "http://127.0.0.1:1/v1")...)
			eventually(t, "its state is there", func() bool { return exists(filepath.Join(dir, "state", "state.db")) })
			// The state is there before signals are heeded by gpuworker: until then
			// they end it without a word.
			eventually(t, "it ends", func() bool { p.signal(syscall.SIGTERM); return p.ended() })
			if code := p.exit(); code > 0 {
				t.Errorf("%s ended with exit code %d: %s", p.name, code, p.stderrText())
			}
		}
	})
	t.Run("a storm", func(t *testing.T) {
		t.Parallel()
		file := promptsFile(t, mixedPrompts(160))
		want := undisturbed(t, file)
		s := serveSlowly(t, 50*time.Millisecond)
		i := install(t, s.url, 2, smallBites)
		id := i.submit(file)
		eventually(t, "the run is under way", func() bool { return s.requests() > 20 })
		for !i.up.ended() {
			i.up.signal(syscall.SIGTERM)
		}
		i.up.wantExit(0)
		i.start()
		i.ends(id)
		wantSame(t, i.outcome(id), want)
	})
	t.Run("the terminal is closed", func(t *testing.T) {
		t.Parallel()
		s := serveSlowly(t, 50*time.Millisecond)
		i := install(t, s.url, 0, smallBites)
		i.submit(promptsFile(t, mixedPrompts(320)))
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

// Who reads events may go (`| head -1`), and nothing may be there to read from:
// the run goes on all the same.
func TestNobodyNeedListen(t *testing.T) {
	t.Parallel()
	file := promptsFile(t, mixedPrompts(160))
	want := undisturbed(t, file)
	s := serve(t)
	i := install(t, s.url, 0, smallBites)
	i.up.signal(syscall.SIGTERM)
	i.up.wantExit(0)
	id := i.submit(file)
	for _, streams := range []string{`| head -1`, `<&- >&- 2>&-`} {
		line := fmt.Sprintf("%q up --once --events --dir %q --engine %q --listen off %s", filepath.Join(binaries, rollout), i.dir, s.url, streams)
		p := shell(t, line)
		p.wantExit(0)
	}
	i.up = nil
	i.start()
	i.ends(id)
	wantSame(t, i.outcome(id), want)
}
