package bucket

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The files that processes have open for writing are read once for all that are looked up.
func TestOpenFilesAreReadOnce(t *testing.T) {
	t.Parallel()
	open := func(name string, flag int) *os.File {
		t.Helper()
		f, err := os.OpenFile(name, flag, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = f.Close() })
		return f
	}
	path := func(name string) string { return filepath.Join(t.TempDir(), name) }
	written := path("written")
	open(written, os.O_CREATE|os.O_WRONLY)
	read := path("read")
	reader := int(open(read, os.O_CREATE|os.O_RDONLY).Fd())
	var files openFiles
	if by := files.writerOf(int(open(written, os.O_RDONLY).Fd())); !strings.Contains(by, "(process ") {
		t.Errorf("the file that is written is open in %q", by)
	}
	if by := files.writerOf(reader); by != "" {
		t.Errorf("the file that is only read is open in %q", by)
	}
	open(read, os.O_WRONLY)
	if by := files.processOf(reader); by != "" {
		t.Errorf("the processes were read again: %q", by)
	}
	if by := (&openFiles{}).processOf(reader); by == "" {
		t.Error("a file that was opened later is not found by a new look")
	}
}
