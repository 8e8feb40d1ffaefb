package sqlite

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"rollout/shared/clock"
	"rollout/shared/fault"
)

// createFilled creates a state of many pages in dir, and returns the path of its file.
func createFilled(t *testing.T, dir string) string {
	t.Helper()
	s, err := Open(t.Context(), dir, Options{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 100 {
		if _, err := s.Documents().Create(t.Context(), fmt.Sprintf("doc/%03d", i), make([]byte, 3000)); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, stateFile)
}

// zero overwrites pages of 4096 bytes of a file with zeros, beginning at page.
func zero(t *testing.T, path string, page int64, pages int) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.WriteAt(make([]byte, 4096*pages), page*4096)
	if err := errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
}

func TestOpenWithCheckFindsDamage(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(t *testing.T, path string){
		"zeroed pages": func(t *testing.T, path string) { zero(t, path, 10, 80) },
		"flipped bits": flipPointers,
		"truncated":    truncate,
		"empty":        func(t *testing.T, path string) { overwrite(t, path, "") },
		"missing, but its log exists": func(t *testing.T, path string) {
			overwrite(t, path+"-wal", "its last writes")
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			path := createFilled(t, dir)
			spoil(t, path)
			s, err := Open(t.Context(), dir, Options{Check: time.Minute})
			if !fault.Is(err, fault.Corrupt) || !strings.Contains(err.Error(), path) ||
				!strings.Contains(err.Error(), "rollout restore") {
				t.Errorf("Open = %v, want Corrupt with the file's name and the remedy", err)
			}
			if err == nil {
				s.Close()
			}
		})
	}
}

// flipPointers flips bits of the first bytes of each later page, which have the type
// and the cells of the page.
func flipPointers(t *testing.T, path string) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for at := 10 * 4096; at < len(b); at += 4096 {
		b[at] ^= 0x55
		b[at+8] ^= 0x55
	}
	overwrite(t, path, string(b))
}

func TestOpenLimitsCheckTime(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	zero(t, createFilled(t, dir), 10, 80)
	s, err := Open(t.Context(), dir, Options{Check: time.Nanosecond})
	if err != nil {
		t.Fatalf("Open = %v, want unchecked pages to count as good", err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// The content of a corrupt file cannot be trusted: after the first sign of damage all
// calls fail, and watchers are told.
func TestAllCallsFailAfterDamage(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := createFilled(t, dir)
	s := openState(t, dir, Options{})
	guarded, cancel := s.CancelOnDamage(t.Context())
	defer cancel()
	zero(t, path, 10, 80)
	_, err := s.Documents().List(t.Context(), "doc/", "", 1000)
	if !fault.Is(err, fault.Corrupt) || !strings.Contains(err.Error(), path) {
		t.Fatalf("List = %v, want Corrupt", err)
	}
	<-s.Damaged()
	<-guarded.Done()
	if cause := context.Cause(guarded); !fault.Is(cause, fault.Corrupt) || !errors.Is(cause, s.Damage()) {
		t.Errorf("the guarded context ended with %v", cause)
	}
	if _, err := s.Documents().Create(t.Context(), "new", nil); !fault.Is(err, fault.Corrupt) {
		t.Errorf("Create after damage = %v, want Corrupt", err)
	}
	if _, err := s.Documents().Get(t.Context(), "doc/000"); !fault.Is(err, fault.Corrupt) {
		t.Errorf("Get after damage = %v, want Corrupt", err)
	}
	if err := s.Backup(t.Context(), filepath.Join(dir, "backup")); !fault.Is(err, fault.Corrupt) {
		t.Errorf("Backup after damage = %v, want Corrupt", err)
	}
}

func TestBackupIsConsistentSnapshot(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	dir, file := t.TempDir(), filepath.Join(t.TempDir(), "backup")
	s := openState(t, dir, Options{})
	rev, err := s.Documents().Create(ctx, "doc", []byte("then"))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Queues().Send(ctx, "work", [][]byte{[]byte("message")}, 0); err != nil {
		t.Fatal(err)
	}
	if err := s.Backup(ctx, file); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Documents().Replace(ctx, "doc", []byte("now"), rev); err != nil {
		t.Fatal(err)
	}
	if err := s.Backup(ctx, file); !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), file) {
		t.Errorf("Backup over a file = %v, want Invalid", err)
	}

	elsewhere := t.TempDir()
	if kept, err := Restore(ctx, elsewhere, file, Options{}); err != nil || kept != "" {
		t.Fatal(kept, err)
	}
	r := openState(t, elsewhere, Options{Check: time.Minute})
	if d, err := r.Documents().Get(ctx, "doc"); err != nil || string(d.Value) != "then" || d.Revision != rev {
		t.Errorf("the restored document is %q at %s, %v", d.Value, d.Revision, err)
	}
	if ms, err := r.Queues().Receive(ctx, "work", 1, time.Minute, 0); err != nil || len(ms) != 1 {
		t.Errorf("the restored queue has %d messages, %v", len(ms), err)
	}
	if _, err := r.Documents().Create(ctx, "more", nil); err != nil {
		t.Error(err)
	}
	wantFiles(t, filepath.Dir(file), "backup")
}

func TestBackupAcceptsUnusualNames(t *testing.T) { // not parallel: changes the working directory
	ctx := t.Context()
	t.Chdir(t.TempDir())
	if err := os.Mkdir("a b", 0o755); err != nil {
		t.Fatal(err)
	}
	s := openState(t, t.TempDir(), Options{})
	if _, err := s.Documents().Create(ctx, "doc", []byte("then")); err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{
		"backup", "./dotted", "a b/in a folder", "a?b=c&d", "a#b", "a%20b", "a:b", "-dash", "日本", "a b//twice",
	} {
		if err := s.Backup(ctx, file); err != nil {
			t.Errorf("%s: %v", file, err)
			continue
		}
		into := t.TempDir()
		if _, err := Restore(ctx, into, file, Options{}); err != nil {
			t.Errorf("%s: %v", file, err)
			continue
		}
		d, err := openState(t, into, Options{}).Documents().Get(ctx, "doc")
		if err != nil || string(d.Value) != "then" {
			t.Errorf("%s holds %q, %v", file, d.Value, err)
		}
	}
	err := s.Backup(ctx, "nowhere/backup")
	if !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), "nowhere/backup") {
		t.Errorf("Backup in a missing folder = %v, want Invalid", err)
	}
	wantFiles(t, "a b", "in a folder", "twice")
}

func TestRestoresInOneSecondKeepAllStates(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	dir, file := t.TempDir(), createFilled(t, t.TempDir())
	s, err := Open(ctx, dir, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Documents().Create(ctx, "first", []byte("x")); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	now := clock.Fixed(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC))
	first, err := Restore(ctx, dir, file, Options{Clock: now})
	if err != nil {
		t.Fatal(err)
	}
	second, err := Restore(ctx, dir, file, Options{Clock: now})
	if err != nil || second == first {
		t.Fatalf("kept as %q and %q, %v", first, second, err)
	}
	third, err := Restore(ctx, dir, file, Options{Clock: now})
	if err != nil || third == second {
		t.Fatalf("kept as %q and %q, %v", second, third, err)
	}
	into := t.TempDir()
	if _, err := Restore(ctx, into, first, Options{Clock: now}); err != nil {
		t.Fatal(err)
	}
	if _, err := openState(t, into, Options{}).Documents().Get(ctx, "first"); err != nil {
		t.Errorf("the state before both restores: %v", err)
	}
}

func TestRestoreKeepsPreviousState(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	dir, file := t.TempDir(), filepath.Join(t.TempDir(), "backup")
	s, err := Open(ctx, dir, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Backup(ctx, file); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Documents().Create(ctx, "late", []byte("x")); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	overwrite(t, filepath.Join(dir, stateFile+"-wal"), "a log of another state")

	now := clock.Fixed(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC))
	kept, err := Restore(ctx, dir, file, Options{Clock: now})
	if want := filepath.Join(dir, "state.db.before-20260301-120000"); err != nil || kept != want {
		t.Fatalf("kept as %q, %v, want %q", kept, err, want)
	}
	restored := openState(t, dir, Options{Check: time.Minute})
	if _, err := restored.Documents().Get(ctx, "late"); !fault.Is(err, fault.NotFound) {
		t.Errorf("a document that was written after the backup: %v, want NotFound", err)
	}
	if _, err := os.Stat(kept + "-wal"); err != nil {
		t.Error(err)
	}
}

func TestRestoreOfInvalidBackupChangesNothing(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(t *testing.T, path string){
		"damaged":            func(t *testing.T, path string) { zero(t, path, 10, 80) },
		"text file":          func(t *testing.T, path string) { overwrite(t, path, strings.Repeat("text\n", 1000)) },
		"empty":              func(t *testing.T, path string) { overwrite(t, path, "") },
		"of another program": pragma("application_id = 7"),
		"of a newer rollout": pragma("user_version = 2"),
		"folder":             func(t *testing.T, path string) { replaceByFolder(t, path) },
		"missing":            func(t *testing.T, path string) { os.Remove(path) },
		"truncated":          truncate,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			s := openState(t, dir, Options{})
			rev, err := s.Documents().Create(t.Context(), "doc", []byte("x"))
			if err != nil {
				t.Fatal(err)
			}
			file := createFilled(t, t.TempDir())
			spoil(t, file)
			if _, err := Restore(t.Context(), dir, file, Options{}); err == nil || !strings.Contains(err.Error(), file) {
				t.Errorf("Restore = %v, want an error that names %s", err, file)
			}
			if d, err := s.Documents().Get(t.Context(), "doc"); err != nil || d.Revision != rev {
				t.Errorf("the state afterwards: %+v, %v", d, err)
			}
			parts, err := filepath.Glob(filepath.Join(dir, "*restore-*"))
			if err != nil || len(parts) > 0 {
				t.Errorf("Restore left %v, %v", parts, err)
			}
		})
	}
}

// wantFiles checks the names in a folder.
func wantFiles(t *testing.T, dir string, want ...string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range entries {
		got = append(got, e.Name())
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%s holds %v, want %v", dir, got, want)
	}
}
