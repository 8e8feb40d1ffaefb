package standalone

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"rollout/shared/config"
	"rollout/shared/fault"
	"rollout/shared/host"
	"rollout/shared/installation"
)

// asWorker as the first argument turns the test binary into a worker process. The second argument is the address that
// it reports to, the third its behaviour.
const asWorker = "as-worker"

func TestMain(m *testing.M) {
	if len(os.Args) > 3 && os.Args[1] == asWorker {
		os.Exit(runWorker(os.Args[2], os.Args[3], os.Args[4:]))
	}
	os.Exit(m.Run())
}

// runWorker is the main function of the fake worker process. It returns the exit code.
func runWorker(addr, behaviour string, args []string) int {
	c, err := net.Dial("tcp", addr)
	if err != nil {
		return 9
	}
	defer c.Close()
	term := make(chan os.Signal, 1)
	signal.Notify(term, syscall.SIGTERM)
	fmt.Fprintln(c, strings.Join(args, " "))
	switch behaviour {
	case "wrong arguments":
		return 2
	case "crashes":
		return 1
	}
	if lock, ok := strings.CutPrefix(behaviour, "stops with the lock "); ok {
		if err := stopWithLock(lock); err != nil {
			return 9
		}
	}
	<-term
	fmt.Fprintln(c, "drained")
	return 0
}

// stopWithLock takes a lock and stops this process, as a debugger would. It may return before the stop takes effect.
func stopWithLock(lock string) error {
	fd, err := syscall.Open(lock, syscall.O_CREAT|syscall.O_RDWR, 0o644)
	if err != nil {
		return err
	}
	return errors.Join(syscall.Flock(fd, syscall.LOCK_EX), syscall.Kill(os.Getpid(), syscall.SIGSTOP))
}

// report is what a worker process sends when it starts.
type report struct {
	at    time.Time
	args  string
	lines *bufio.Scanner // what it sends later
}

// start supervises a worker of that behaviour. The channel err receives the result of supervise.
func start(
	t *testing.T, behaviour string, edit ...func(*Options),
) (s *Runtime, reports <-chan report, err <-chan error) {
	t.Helper()
	l, lerr := net.Listen("tcp", "127.0.0.1:0")
	if lerr != nil {
		t.Fatal(lerr)
	}
	t.Cleanup(func() { l.Close() })
	ch, end := make(chan report), make(chan error, 1)
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			r := report{at: time.Now(), lines: bufio.NewScanner(c)}
			r.lines.Scan()
			r.args = r.lines.Text()
			select {
			case ch <- r:
			case <-ctx.Done():
				return
			}
		}
	}()
	self, serr := os.Executable()
	if serr != nil {
		t.Fatal(serr)
	}
	s = &Runtime{stopping: make(chan struct{}), o: Options{
		Local:  &installation.Local{Ports: host.Ports{Log: slog.New(slog.DiscardHandler)}},
		Worker: []string{self, asWorker, l.Addr().String(), behaviour},
	}}
	for _, f := range edit {
		f(&s.o)
	}
	go func() { end <- s.supervise(ctx, "default") }()
	return s, ch, end
}

func TestCrashedWorkerIsRestartedWithBackoff(t *testing.T) {
	t.Parallel()
	s, reports, end := start(t, "crashes")
	var at []time.Time
	for range 4 {
		r := <-reports
		at = append(at, r.at)
		if want := fmt.Sprintf("--pool default --parent %d", os.Getpid()); r.args != want {
			t.Errorf("started with %q, want %q", r.args, want)
		}
	}
	for i, least := range []time.Duration{100 * time.Millisecond, 200 * time.Millisecond, 400 * time.Millisecond} {
		if wait := at[i+1].Sub(at[i]); wait < least {
			t.Errorf("start %d came after %s, want %s or more", i+1, wait, least)
		}
	}
	close(s.stopping) // during the wait before a restart
	if err := <-end; err != nil {
		t.Errorf("after the stop: %v", err)
	}
}

func TestStalledWorkerWithLockIsKilled(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s, reports, _ := start(t, "stops with the lock "+filepath.Join(dir, "state.hold.lock"), func(o *Options) {
		o.Local.Dir, o.Deployment.Health.FailureTimeout = dir, config.Duration(200*time.Millisecond)
	})
	first := <-reports
	again := <-reports // the next worker starts only after the first has ended
	if d := again.at.Sub(first.at); d < 200*time.Millisecond {
		t.Errorf("it was killed after %s, before it counted as failed", d)
	}
	close(s.stopping)
}

func TestWorkerWithWrongArgumentsIsNotRestarted(t *testing.T) {
	t.Parallel()
	_, reports, end := start(t, "wrong arguments")
	<-reports
	if err := <-end; !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), "pool default") {
		t.Errorf("%v", err)
	}
}

func TestStopDrainsTheWorker(t *testing.T) {
	t.Parallel()
	s, reports, end := start(t, "serves")
	r := <-reports
	close(s.stopping)
	var lines []string
	for r.lines.Scan() {
		lines = append(lines, r.lines.Text())
	}
	if err := <-end; err != nil || !slices.Equal(lines, []string{"drained"}) {
		t.Errorf("it sent %q, %v", lines, err)
	}
}
