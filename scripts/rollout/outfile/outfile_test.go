package outfile

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"rollout/shared/fault"
)

func text(s string) func(io.Writer) error {
	return func(w io.Writer) error {
		_, err := io.WriteString(w, s)
		return err
	}
}

func want(t *testing.T, path, text string) {
	t.Helper()
	if b, err := os.ReadFile(path); string(b) != text {
		t.Errorf("%s holds %q, %v, want %q", path, b, err, text)
	}
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil || len(entries) != 1 {
		t.Errorf("beside it: %v, %v", entries, err)
	}
}

func TestAFileHasTheRightsThatTheUmaskLeaves(t *testing.T) { // the umask is the process's: not parallel
	for umask, rights := range map[int]os.FileMode{0o022: 0o644, 0o077: 0o600, 0o002: 0o664} {
		path := filepath.Join(t.TempDir(), "x")
		was := syscall.Umask(umask)
		err := Write(path, text("mine"))
		syscall.Umask(was)
		if err != nil {
			t.Fatal(err)
		}
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != rights {
			t.Errorf("with umask %o it is %v, %v, want %o", umask, info.Mode(), err, rights)
		}
		want(t, path, "mine")
	}
}

func TestAFileIsReplacedWholeOrStays(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "x")
	if err := Write(path, text("old")); err != nil {
		t.Fatal(err)
	}
	for kind, why := range map[fault.Kind]error{
		fault.Unavailable: errors.New("the disk is full"),
		fault.Corrupt:     fault.New(fault.Corrupt, "other rows than were counted"),
	} {
		err := Write(path, func(w io.Writer) error { return errors.Join(text("half")(w), why) })
		if !errors.Is(err, why) || !fault.Is(err, kind) {
			t.Errorf("got %v (%s), want %v (%s)", err, fault.KindOf(err), why, kind)
		}
		want(t, path, "old")
	}
	if err := Write(path, text("new")); err != nil {
		t.Fatal(err)
	}
	want(t, path, "new")
}

func TestAPlaceThatCannotBeWrittenIsToldAsSuch(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := Write(filepath.Join(dir, "nowhere", "x"), text("a")); !fault.Is(err, fault.Denied) {
		t.Errorf("in a folder that is not there: %v", err)
	}
	taken := filepath.Join(dir, "folder")
	if err := os.Mkdir(taken, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := Write(taken, text("a")); !fault.Is(err, fault.Unavailable) {
		t.Errorf("where a folder is: %v", err)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
		t.Errorf("it left %v, %v", entries, err)
	}
}
