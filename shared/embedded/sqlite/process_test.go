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

// The tests of several processes start the test binary again with one of
// these parts to play.
const (
	childPart = "STATE_TEST_PART" // one of childParts
	childDir  = "STATE_TEST_DIR"
	childLoad = "STATE_TEST_LOAD" // how much of it
)

var childParts = map[string]func(ctx context.Context, s *State, load int) error{
	"count":                playCount,
	"die before a commit":  playDieBefore,
	"die after the commit": playDieAfter,
	"stop amid a commit":   playStop,
}

// TestChild plays a part in a process started by another test.
func TestChild(t *testing.T) {
	play := childParts[os.Getenv(childPart)]
	if play == nil {
		return // this is the process of the tests themselves
	}
	load, err := strconv.Atoi(os.Getenv(childLoad))
	if err != nil {
		t.Fatal(err)
	}
	if err := play(t.Context(), openState(t, os.Getenv(childDir), Options{}), load); err != nil {
		t.Fatal(err)
	}
}

// startChild starts a process; its lines begin with "child: ".
func startChild(t testing.TB, part, dir string, load int) (*exec.Cmd, *bufio.Scanner) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestChild$", "-test.v")
	cmd.Env = append(os.Environ(), childPart+"="+part, childDir+"="+dir, childLoad+"="+strconv.Itoa(load))
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

// said returns what the child says next, "" if it has ended.
func said(lines *bufio.Scanner) string {
	for lines.Scan() {
		if _, text, ok := strings.Cut(lines.Text(), "child: "); ok {
			return text
		}
	}
	return ""
}

// playCount adds to the counter that all children share, and says how long it
// had to wait for its slowest write.
func playCount(ctx context.Context, s *State, load int) error {
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

func playDieBefore(ctx context.Context, s *State, load int) error {
	s.writer.steps.beforeCommit = freeze
	return writeMuch(ctx, s, load)
}

func playDieAfter(ctx context.Context, s *State, load int) error {
	s.writer.steps.afterCommit = freeze
	return writeMuch(ctx, s, load)
}

// freeze says that the process is where it is to be killed.
func freeze() {
	fmt.Println("child: frozen")
	select {}
}

// writeMuch writes documents and messages in one group.
func writeMuch(ctx context.Context, s *State, load int) error {
	other, err := openFileLock(s.dir(), slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	if err := other.lock(ctx, patience); err != nil {
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

// awaitPending waits until the writer, which is kept from the lock, has
// taken one change and the others stand in line.
func awaitPending(s *State, changes int) {
	for len(s.writer.changes) < changes-1 {
		runtime.Gosched()
	}
}

func TestProcessesLoseNoUpdate(t *testing.T) {
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
		micros, err := strconv.Atoi(said(lines[i]))
		if err != nil {
			t.Errorf("child %d: %v", i, err)
		}
		slowest = max(slowest, time.Duration(micros)*time.Microsecond)
		said(lines[i])
		if err := cmd.Wait(); err != nil {
			t.Errorf("child %d: %v", i, err)
		}
	}
	return slowest
}

// BenchmarkProcesses reports the slowest of all writes of four processes
// that fight for one document.
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
	for part, visible := range map[string]bool{"die before a commit": false, "die after the commit": true} {
		t.Run(part, func(t *testing.T) {
			t.Parallel()
			const load = 40
			dir := t.TempDir()
			cmd, lines := startChild(t, part, dir, load)
			if got := said(lines); got != "frozen" {
				t.Fatalf("the child said %q", got)
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
				t.Errorf("%d documents are there, %v, want %d", len(docs), err, want)
			}
			msgs, err := s.Queues().Receive(t.Context(), "work", 1000, time.Minute, 0)
			if err != nil || len(msgs) != want {
				t.Errorf("%d messages are there, %v, want %d", len(msgs), err, want)
			}
			if _, err := s.Documents().Create(t.Context(), "after", nil); err != nil {
				t.Errorf("the dead process still keeps the lock: %v", err)
			}
		})
	}
}
