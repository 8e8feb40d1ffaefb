package sqlite

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"rollout/shared/fault"
)

// Tests with several processes start the test binary again with these variables.
const (
	childRole = "STATE_TEST_ROLE" // a key of childRoles
	childDir  = "STATE_TEST_DIR"
	childLoad = "STATE_TEST_LOAD" // the number of writes
)

var childRoles = map[string]func(ctx context.Context, s *State, load int) error{
	"count":              runCount,
	"die before commit":  runDieBefore,
	"die after commit":   runDieAfter,
	"stop before commit": runStop,
}

// TestChild runs the role of a process that another test started.
func TestChild(t *testing.T) {
	role := childRoles[os.Getenv(childRole)]
	if role == nil {
		return // this is not a child process
	}
	load, err := strconv.Atoi(os.Getenv(childLoad))
	if err != nil {
		t.Fatal(err)
	}
	if err := role(t.Context(), openState(t, os.Getenv(childDir), Options{}), load); err != nil {
		t.Fatal(err)
	}
}

// startChild starts a child process. Its lines begin with "child: ".
func startChild(t testing.TB, role, dir string, load int) (*exec.Cmd, *bufio.Scanner) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestChild$", "-test.v")
	cmd.Env = append(os.Environ(), childRole+"="+role, childDir+"="+dir, childLoad+"="+strconv.Itoa(load))
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return cmd, bufio.NewScanner(out)
}

// nextLine returns the child's next line, "" after its end.
func nextLine(lines *bufio.Scanner) string {
	for lines.Scan() {
		if _, text, ok := strings.Cut(lines.Text(), "child: "); ok {
			return text
		}
	}
	return ""
}

// runCount increments the counter that all children share, and prints the duration of
// its slowest write in microseconds.
func runCount(ctx context.Context, s *State, load int) error {
	var slowest time.Duration
	for range load {
		if err := addOne(ctx, s, &slowest); err != nil {
			return err
		}
	}
	fmt.Printf("child: %d\n", slowest.Microseconds())
	return nil
}

func addOne(ctx context.Context, s *State, slowest *time.Duration) error {
	docs := s.Documents()
	for {
		d, err := docs.Get(ctx, "counter")
		if err != nil {
			return err
		}
		n, err := strconv.Atoi(string(d.Value))
		if err != nil {
			return err
		}
		began := time.Now()
		_, err = docs.Replace(ctx, "counter", []byte(strconv.Itoa(n+1)), d.Revision)
		*slowest = max(*slowest, time.Since(began))
		if !fault.Is(err, fault.Conflict) {
			return err
		}
	}
}

func runDieBefore(ctx context.Context, s *State, load int) error {
	s.writer.hooks.beforeCommit = freeze
	return writeMuch(ctx, s, load)
}

func runDieAfter(ctx context.Context, s *State, load int) error {
	s.writer.hooks.afterCommit = freeze
	return writeMuch(ctx, s, load)
}

// freeze reports that the process can be killed now, and blocks.
func freeze() {
	fmt.Println("child: frozen")
	select {}
}

// writeMuch writes load documents and load messages in one group.
func writeMuch(ctx context.Context, s *State, load int) error {
	other, err := openFileLock(s.dir(), slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	if err := other.lock(ctx, lockTimeout); err != nil {
		return err
	}
	var done sync.WaitGroup
	errs := make([]error, 2*load)
	for i := range load {
		done.Go(func() { _, errs[2*i] = s.Documents().Create(ctx, fmt.Sprintf("doc/%03d", i), []byte("x")) })
		done.Go(func() { errs[2*i+1] = s.Queues().Send(ctx, "work", [][]byte{[]byte("x")}, 0) })
	}
	awaitPending(s, 2*load)
	if err := other.unlock(); err != nil {
		return err
	}
	done.Wait()
	return errors.Join(errs...)
}

// awaitPending waits until the writer, which waits for the lock, has taken one change
// and the others are in its channel.
func awaitPending(s *State, changes int) {
	for len(s.writer.changes) < changes-1 {
		runtime.Gosched()
	}
}

func TestConcurrentProcessesLoseNoUpdates(t *testing.T) {
	t.Parallel()
	const children, each = 4, 50
	dir := t.TempDir()
	s := openState(t, dir, Options{})
	if _, err := s.Documents().Create(t.Context(), "counter", []byte("0")); err != nil {
		t.Fatal(err)
	}
	countInChildren(t, dir, children, each)
	d, err := s.Documents().Get(t.Context(), "counter")
	if err != nil || string(d.Value) != strconv.Itoa(children*each) {
		t.Errorf("%d processes added %d each, the counter is %s, %v", children, each, d.Value, err)
	}
}

// countInChildren returns the slowest write of all children.
func countInChildren(t testing.TB, dir string, children, each int) time.Duration {
	t.Helper()
	cmds := make([]*exec.Cmd, children)
	lines := make([]*bufio.Scanner, children)
	for i := range children {
		cmds[i], lines[i] = startChild(t, "count", dir, each)
	}
	var slowest time.Duration
	for i, cmd := range cmds {
		micros, err := strconv.Atoi(nextLine(lines[i]))
		if err != nil {
			t.Errorf("child %d: %v", i, err)
		}
		slowest = max(slowest, time.Duration(micros)*time.Microsecond)
		nextLine(lines[i])
		if err := cmd.Wait(); err != nil {
			t.Errorf("child %d: %v", i, err)
		}
	}
	return slowest
}

// BenchmarkProcesses reports the slowest write of four processes that contend for one
// document.
func BenchmarkProcesses(b *testing.B) {
	dir := b.TempDir()
	s := openState(b, dir, Options{})
	if _, err := s.Documents().Create(b.Context(), "counter", []byte("0")); err != nil {
		b.Fatal(err)
	}
	b.ResetTimer()
	slowest := countInChildren(b, dir, 4, b.N)
	b.ReportMetric(float64(slowest.Microseconds())/1000, "ms-slowest")
	b.ReportMetric(float64(4*b.N)/b.Elapsed().Seconds(), "swaps/s")
}

func TestKilledProcessLeavesAllOrNothing(t *testing.T) {
	t.Parallel()
	for role, visible := range map[string]bool{"die before commit": false, "die after commit": true} {
		t.Run(role, func(t *testing.T) {
			t.Parallel()
			const load = 40
			dir := t.TempDir()
			cmd, lines := startChild(t, role, dir, load)
			if got := nextLine(lines); got != "frozen" {
				t.Fatalf("the child wrote %q", got)
			}
			if err := cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			_ = cmd.Wait() // reports the kill

			want := 0
			if visible {
				want = load
			}
			s := openState(t, dir, Options{})
			docs, err := s.Documents().List(t.Context(), "doc/", "", 1000)
			if err != nil || len(docs) != want {
				t.Errorf("found %d documents, %v, want %d", len(docs), err, want)
			}
			msgs, err := s.Queues().Receive(t.Context(), "work", 1000, time.Minute, 0)
			if err != nil || len(msgs) != want {
				t.Errorf("found %d messages, %v, want %d", len(msgs), err, want)
			}
			if _, err := s.Documents().Create(t.Context(), "after", nil); err != nil {
				t.Errorf("the killed process still holds the lock: %v", err)
			}
		})
	}
}
