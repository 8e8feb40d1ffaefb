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

// checkOnlyFile fails the test unless the file at path holds text and is the only file in its folder.
func checkOnlyFile(t *testing.T, path, text string) {
	t.Helper()
	if b, err := os.ReadFile(path); string(b) != text {
		t.Errorf("%s holds %q, %v, want %q", path, b, err, text)
	}
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil || len(entries) != 1 {
		t.Errorf("the folder holds %v, %v, want one file", entries, err)
	}
}

func TestWriteRespectsUmask(t *testing.T) { // not parallel: the umask belongs to the process
	for umask, mode := range map[int]os.FileMode{0o022: 0o644, 0o077: 0o600, 0o002: 0o664} {
		path := filepath.Join(t.TempDir(), "x")
		previous := syscall.Umask(umask)
		err := Write(path, text("mine"))
		syscall.Umask(previous)
		if err != nil {
			t.Fatal(err)
		}
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != mode {
			t.Errorf("with umask %o the mode is %v, %v, want %o", umask, info.Mode(), err, mode)
		}
		checkOnlyFile(t, path, "mine")
	}
}

func TestWriteReplacesCompletelyOrNotAtAll(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "x")
	if err := Write(path, text("old")); err != nil {
		t.Fatal(err)
	}
	for kind, cause := range map[fault.Kind]error{
		fault.Unavailable: errors.New("the disk is full"),
		fault.Corrupt:     fault.New(fault.Corrupt, "unexpected number of rows"),
	} {
		err := Write(path, func(w io.Writer) error { return errors.Join(text("half")(w), cause) })
		if !errors.Is(err, cause) || !fault.Is(err, kind) {
			t.Errorf("got %v (%s), want %v (%s)", err, fault.KindOf(err), cause, kind)
		}
		checkOnlyFile(t, path, "old")
	}
	if err := Write(path, text("new")); err != nil {
		t.Fatal(err)
	}
	checkOnlyFile(t, path, "new")
}

func TestWriteFailsWhereNoFileCanBeCreated(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := Write(filepath.Join(dir, "nowhere", "x"), text("a")); !fault.Is(err, fault.Denied) {
		t.Errorf("in a missing folder: %v, want Denied", err)
	}
	taken := filepath.Join(dir, "folder")
	if err := os.Mkdir(taken, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := Write(taken, text("a")); !fault.Is(err, fault.Unavailable) {
		t.Errorf("over a folder: %v, want Unavailable", err)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
		t.Errorf("left behind: %v, %v", entries, err)
	}
}

func TestRunIDIsReadAsWritten(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	const id = "01JD2ZQ4T5W0M1X9YB7R3K8CVE"
	if got, err := ReadRunID(dir); got != "" || err != nil {
		t.Errorf("without a file: %q, %v", got, err)
	}
	if err := WriteRunID(dir, id); err != nil {
		t.Fatal(err)
	}
	if got, err := ReadRunID(dir); got != id || err != nil {
		t.Errorf("got %q, %v, want %s", got, err, id)
	}
	if err := WriteBytes(filepath.Join(dir, runIDFile), []byte("garbage")); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadRunID(dir); !fault.Is(err, fault.Invalid) {
		t.Errorf("an invalid file: %v, want Invalid", err)
	}
}
