package sqlite

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"rollout/shared/fault"
)

func TestGroupIsOneCommit(t *testing.T) {
	t.Parallel()
	const load = 64
	s := openState(t, t.TempDir(), Options{})
	before := s.writer.commits.Load()
	if err := writeMuch(t.Context(), s, load); err != nil {
		t.Fatal(err)
	}
	if commits := s.writer.commits.Load() - before; commits != 1 {
		t.Errorf("%d writes of as many callers took %d commits, want 1", 2*load, commits)
	}
}

func TestRefusedChangeDoesNotAffectItsGroup(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s := openState(t, t.TempDir(), Options{})
	if _, err := s.Documents().Create(ctx, "doc/000", nil); err != nil {
		t.Fatal(err)
	}
	err := writeMuch(ctx, s, 10)
	if !fault.Is(err, fault.Conflict) || !strings.Contains(err.Error(), "doc/000 exists already") {
		t.Errorf("got %v, want one conflict", err)
	}
	if lines := strings.Count(err.Error(), "\n") + 1; lines != 1 {
		t.Errorf("%d of the callers were refused, want 1: %v", lines, err)
	}
	docs, err := s.Documents().List(ctx, "doc/", "", 100)
	if err != nil || len(docs) != 10 {
		t.Errorf("found %d documents, %v, want 10", len(docs), err)
	}
}

func TestCallsWithoutChangesDoNotCommit(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s := openState(t, t.TempDir(), Options{})
	rev, err := s.Documents().Create(ctx, "doc", []byte("x"))
	if err != nil {
		t.Fatal(err)
	}
	before := s.writer.commits.Load()
	if _, err := s.Documents().Create(ctx, "doc", []byte("y")); !fault.Is(err, fault.Conflict) {
		t.Error(err)
	}
	if _, err := s.Documents().Replace(ctx, "doc", []byte("y"), rev+"0"); !fault.Is(err, fault.Conflict) {
		t.Error(err)
	}
	if err := s.Documents().Delete(ctx, "absent", rev); !fault.Is(err, fault.NotFound) {
		t.Error(err)
	}
	if _, err := s.Queues().Receive(ctx, "work", 10, time.Minute, 0); err != nil {
		t.Error(err)
	}
	if err := s.Queues().Ack(ctx, "work", []string{"1.1"}); err != nil {
		t.Error(err)
	}
	if commits := s.writer.commits.Load() - before; commits != 0 {
		t.Errorf("%d commits, want 0", commits)
	}
}

func TestCallReturnsWhenItsContextEnds(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := openState(t, dir, Options{})
	other, err := openFileLock(dir, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	if err := other.lock(t.Context(), lockTimeout); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var done sync.WaitGroup
	done.Go(func() {
		if _, err := s.Documents().Create(ctx, "doc", nil); !fault.Is(err, fault.Canceled) {
			t.Errorf("got %v, want canceled", err)
		}
	})
	cancel()
	done.Wait()
	if err := errors.Join(other.unlock(), other.close()); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Documents().Create(t.Context(), "next", nil); err != nil {
		t.Errorf("the next write: %v", err)
	}
}

func TestCloseEndsWatchesAndReceivers(t *testing.T) {
	t.Parallel()
	s, err := Open(t.Context(), t.TempDir(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	hints := s.notifier.watch(t.Context(), "")
	got := make(chan error)
	go func() {
		_, err := s.Queues().Receive(t.Context(), "work", 1, time.Minute, time.Minute)
		got <- err
	}()
	for !receives(s.notifier, "work") {
		runtime.Gosched()
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-got; !fault.Is(err, fault.Canceled) {
		t.Errorf("the waiting receiver got %v, want canceled", err)
	}
	for range hints { // ends when the channel is closed
	}
}

// receives reports whether a receiver waits for the queue's messages.
func receives(b *notifier, queue string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for w := range b.waiters {
		if w.queue == queue {
			return true
		}
	}
	return false
}

func TestStateSurvivesReopening(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), `odd %41 name?mode=ro#x&`, "deeper")
	s, err := Open(t.Context(), dir, Options{})
	if err != nil {
		t.Fatal(err)
	}
	rev, err := s.Documents().Create(t.Context(), "doc", []byte("x"))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(dir, stateFile)); err != nil {
		t.Error(err)
	}
	d, err := openState(t, dir, Options{}).Documents().Get(t.Context(), "doc")
	if err != nil || string(d.Value) != "x" || d.Revision != rev {
		t.Errorf("got %+v, %v after reopening", d, err)
	}
}

func TestOpenRefusesInvalidStateFiles(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		spoil func(t *testing.T, path string)
		kind  fault.Kind
		text  string
	}{
		{"text file", overwriteByText, fault.Corrupt, "move state.db"},
		{"truncated database", truncate, fault.Corrupt, "move state.db"},
		{"database of another program", pragma("application_id = 7"), fault.Corrupt, "another program"},
		{"database of a newer rollout", pragma("user_version = 2"), fault.Invalid, "newer rollout"},
		{"folder", replaceByFolder, fault.Unavailable, "open"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			path := filepath.Join(dir, stateFile)
			s, err := Open(t.Context(), dir, Options{})
			if err != nil {
				t.Fatal(err)
			}
			for i := range 50 {
				if _, err := s.Documents().Create(t.Context(), fmt.Sprint(i), make([]byte, 3000)); err != nil {
					t.Fatal(err)
				}
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			c.spoil(t, path)
			err = useAll(t, dir)
			if !fault.Is(err, c.kind) || !strings.Contains(err.Error(), path) ||
				!strings.Contains(err.Error(), c.text) {
				t.Errorf("got %v (%v), want %v naming %s and %q", err, fault.KindOf(err), c.kind, path, c.text)
			}
		})
	}
}

// useAll opens the state and reads all documents.
func useAll(t *testing.T, dir string) error {
	s, err := Open(t.Context(), dir, Options{})
	if err != nil {
		return err
	}
	defer s.Close()
	_, err = s.Documents().List(t.Context(), "", "", 1000)
	return err
}

func overwrite(t *testing.T, path, content string) {
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

func overwriteByText(t *testing.T, path string) {
	overwrite(t, path, strings.Repeat("not a database\n", 400))
}

func truncate(t *testing.T, path string) {
	if err := os.Truncate(path, 5*4096+100); err != nil {
		t.Fatal(err)
	}
}

func replaceByFolder(t *testing.T, path string) {
	if err := errors.Join(os.Remove(path), os.Mkdir(path, 0o755)); err != nil {
		t.Fatal(err)
	}
}

func pragma(set string) func(t *testing.T, path string) {
	return func(t *testing.T, path string) {
		s, err := openSession(t.Context(), path, "rw")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.exec(t.Context(), "PRAGMA "+set); err != nil {
			t.Fatal(err)
		}
		if err := s.close(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestDiskFullIsExhausted(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s := openState(t, t.TempDir(), Options{})
	if _, err := s.Documents().Create(ctx, "before", []byte("x")); err != nil {
		t.Fatal(err)
	}
	// The writer's connection refuses to grow the file, as a full disk does.
	if _, _, err := s.writer.session.number(ctx, `PRAGMA max_page_count = 10`); err != nil {
		t.Fatal(err)
	}
	_, err := s.Documents().Create(ctx, "large", make([]byte, 200_000))
	if !fault.Is(err, fault.Exhausted) || !strings.Contains(err.Error(), "free space") {
		t.Errorf("got %v (%v), want Exhausted with a remedy", err, fault.KindOf(err))
	}
	if _, err := s.Documents().Create(ctx, "small", []byte("x")); err != nil {
		t.Errorf("a small write afterwards: %v", err)
	}
}

func TestSQLiteErrorsHaveKinds(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s := openState(t, t.TempDir(), Options{})
	open := func(mode string) *session {
		one, err := openSession(ctx, s.path, mode)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := one.close(); err != nil {
				t.Error(err)
			}
		})
		return one
	}
	_, err := open("ro").exec(ctx, `UPDATE counter SET writes = 0`)
	if !fault.Is(err, fault.Denied) || !strings.Contains(err.Error(), "writable") {
		t.Errorf("write to a read-only file: %v (%v), want Denied with a remedy", err, fault.KindOf(err))
	}
	foreign := open("rw")
	if _, err := foreign.exec(ctx, `BEGIN IMMEDIATE`); err != nil {
		t.Fatal(err)
	}
	if _, err := open("rw").exec(ctx, `BEGIN IMMEDIATE`); !fault.Is(err, fault.Unavailable) {
		t.Errorf("write during a transaction of another program: %v (%v), want unavailable", err, fault.KindOf(err))
	}
	if _, err := foreign.exec(ctx, `ROLLBACK`); err != nil {
		t.Fatal(err)
	}
	if _, err := foreign.exec(ctx, `SELECT nonsense FROM nowhere`); !fault.Is(err, fault.Internal) {
		t.Errorf("invalid statement: %v (%v), want Internal", err, fault.KindOf(err))
	}
}
