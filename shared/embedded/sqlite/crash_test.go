package sqlite

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"rollout/shared/clock"
	"rollout/shared/disk"
	"rollout/shared/disk/disktest"
	"rollout/shared/fault"
)

// SQLite syncs these files itself; see TestCommitsAreSynced.
var synced = []string{stateFile, stateFile + "-wal"}

// withState opens the state on the disk, checks all of it, and closes it after do.
func withState(d disk.Disk, dir string, do func(s *State) error) error {
	s, err := Open(context.Background(), dir, Options{Disk: d, Check: time.Minute})
	if err != nil {
		return err
	}
	return errors.Join(do(s), s.Close())
}

// createDocs creates documents that name the state, in several transactions.
func createDocs(name string) func(s *State) error {
	return func(s *State) error {
		for n := range 3 {
			_, err := s.Documents().Create(context.Background(), fmt.Sprintf("%s/%d", name, n), make([]byte, 5000))
			if err != nil && !fault.Is(err, fault.Conflict) {
				return err
			}
		}
		return nil
	}
}

// names returns the states whose documents are all there. It fails if a state has only
// some of its documents.
func names(s *State) ([]string, error) {
	counts := map[string]int{}
	docs, err := s.Documents().List(context.Background(), "", "", 100)
	for _, d := range docs {
		name, _, _ := strings.Cut(d.Key, "/")
		counts[name]++
	}
	var out []string
	for name, n := range counts {
		if n != 3 {
			err = errors.Join(err, fmt.Errorf("state %s has %d documents, want 3", name, n))
		}
		out = append(out, name)
	}
	return out, err
}

// wantState fails unless the state in dir is one of those with the names; "" is an empty one.
func wantState(d disk.Disk, dir string, want ...string) error {
	return withState(d, dir, func(s *State) error {
		got, err := names(s)
		if name := strings.Join(got, "+"); !slices.Contains(want, name) {
			err = errors.Join(err, fmt.Errorf("the state is %q, want one of %q", name, want))
		}
		return err
	})
}

// leaveLog writes the state in dir again as a process leaves it that is killed: with
// its log, which holds the last documents.
func leaveLog(d disk.Disk, dir string, do func(s *State) error) error {
	path := filepath.Join(dir, stateFile)
	left := map[string][]byte{}
	err := withState(d, dir, func(s *State) error {
		if err := do(s); err != nil {
			return err
		}
		for _, file := range []string{path, path + "-wal"} {
			b, err := os.ReadFile(file)
			if err != nil {
				return err
			}
			left[file] = b
		}
		return nil
	})
	for file, b := range left {
		err = errors.Join(err, os.WriteFile(file, b, 0o644))
	}
	return err
}

func crashOperations(t *testing.T) []disktest.Operation {
	backup, err := os.ReadFile(backupOf(t, "backup"))
	if err != nil {
		t.Fatal(err)
	}
	ctx := context.Background()
	open := disktest.Operation{Name: "open", Owned: synced, New: func(*rand.Rand) disktest.Case {
		state := func(dir string) string { return filepath.Join(dir, "up", "state") }
		return disktest.Case{
			Do: func(d disk.Disk, dir string) error { return withState(d, state(dir), createDocs("new")) },
			Check: func(d disk.Disk, dir string, done bool) error {
				if done {
					return wantState(d, state(dir), "new")
				}
				return withState(d, state(dir), func(*State) error { return nil })
			},
		}
	}}
	makeBackup := disktest.Operation{Name: "backup", Owned: synced, New: func(*rand.Rand) disktest.Case {
		backups := func(dir string) ([]string, error) { return filepath.Glob(filepath.Join(dir, "backup-*")) }
		return disktest.Case{
			Prepare: func(d disk.Disk, dir string) error {
				return withState(d, filepath.Join(dir, "state"), createDocs("old"))
			},
			Do: func(d disk.Disk, dir string) error {
				return withState(d, filepath.Join(dir, "state"), func(s *State) error {
					return s.Backup(ctx, disktest.NewName(dir, "backup-"))
				})
			},
			Check: func(d disk.Disk, dir string, done bool) error {
				made, err := backups(dir)
				if done && len(made) == 0 {
					return errors.New("no backup survived")
				}
				for _, file := range made {
					into := disktest.NewName(dir, "restored-")
					_, restoreErr := Restore(ctx, into, file, Options{})
					err = errors.Join(err, restoreErr, wantState(disk.System{}, into, "old"))
				}
				return errors.Join(err, wantState(d, filepath.Join(dir, "state"), "old"))
			},
		}
	}}
	restore := disktest.Operation{Name: "restore", Owned: synced, New: func(r *rand.Rand) disktest.Case {
		state, before := func(dir string) string { return filepath.Join(dir, "state") }, r.IntN(3)
		now := clock.Fixed(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC))
		return disktest.Case{
			Prepare: func(d disk.Disk, dir string) error {
				switch before {
				case 0:
					return nil
				case 1:
					return withState(d, state(dir), createDocs("old"))
				}
				return leaveLog(d, state(dir), createDocs("old"))
			},
			Do: func(d disk.Disk, dir string) error {
				file := filepath.Join(dir, "backup")
				if err := os.WriteFile(file, backup, 0o600); err != nil {
					return err
				}
				_, err := Restore(ctx, state(dir), file, Options{Disk: d, Clock: now})
				return err
			},
			Check: func(d disk.Disk, dir string, done bool) error {
				want := []string{"backup"}
				if !done && before == 0 {
					want = append(want, "")
				} else if !done {
					want = append(want, "old")
				}
				if err := wantState(d, state(dir), want...); err != nil {
					return err
				}
				kept := filepath.Join(state(dir), stateFile+keptInfix+"20260301-120000")
				if _, err := os.Stat(kept); errors.Is(err, fs.ErrNotExist) && !done || before == 0 {
					return nil
				}
				return wantKept(kept, filepath.Join(dir, "look"))
			},
		}
	}}
	return []disktest.Operation{open, makeBackup, restore}
}

// wantKept fails unless the state "old" is complete under the name kept. It copies the
// state to the folder look.
func wantKept(kept, look string) error {
	if err := errors.Join(os.RemoveAll(look), os.Mkdir(look, 0o755)); err != nil {
		return err
	}
	for _, end := range []string{"", "-wal"} {
		b, err := os.ReadFile(kept + end)
		if errors.Is(err, fs.ErrNotExist) && end != "" {
			continue
		}
		if err := errors.Join(err, os.WriteFile(filepath.Join(look, stateFile+end), b, 0o600)); err != nil {
			return err
		}
	}
	return wantState(disk.System{}, look, "old")
}

// backupOf returns a file with a state of that name.
func backupOf(t *testing.T, name string) string {
	t.Helper()
	dir := t.TempDir()
	file := filepath.Join(dir, "backup")
	err := withState(disk.System{}, dir, func(s *State) error {
		return errors.Join(createDocs(name)(s), s.Backup(t.Context(), file))
	})
	if err != nil {
		t.Fatal(err)
	}
	return file
}

func TestStateSurvivesPowerFailures(t *testing.T) {
	t.Parallel()
	disktest.TryEach(t, crashOperations(t))
}

func TestEachSyncOfStateIsNeeded(t *testing.T) {
	t.Parallel()
	disktest.FindEverySync(t, crashOperations(t))
}

// TestCommitsAreSynced holds what the other tests take for granted: that SQLite syncs
// each commit, on darwin with F_FULLFSYNC.
func TestCommitsAreSynced(t *testing.T) {
	t.Parallel()
	s := openState(t, t.TempDir(), Options{})
	for pragma, want := range map[string]int64{
		"synchronous": 2, // FULL
		"fullfsync":   1,
	} {
		got, _, err := s.writer.session.number(t.Context(), "PRAGMA "+pragma)
		if err != nil || got != want {
			t.Errorf("%s is %d, %v, want %d", pragma, got, err, want)
		}
	}
	for range readers {
		r := <-s.readers
		if _, err := r.exec(t.Context(), `DELETE FROM counter`); err == nil {
			t.Error("a reader can write, and its commits are not synced")
		}
		s.readers <- r
	}
}
