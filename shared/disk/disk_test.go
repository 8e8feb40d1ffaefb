package disk_test

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"rollout/shared/disk"
	"rollout/shared/disk/disktest"
)

// plain is a disk whose file system has no rename without replacing.
type plain struct{ disk.Disk }

func (p plain) Rename(fromFolder int, from string, toFolder int, to string, replace bool) error {
	if !replace {
		return unix.EINVAL
	}
	return p.Disk.Rename(fromFolder, from, toFolder, to, replace)
}

func create(t *testing.T, d disk.Disk, path, content string) *disk.File {
	t.Helper()
	f, err := disk.Create(d, path, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString(content); err != nil {
		t.Fatal(err)
	}
	return f
}

// wantOnly fails unless the file holds the text and is alone in its folder.
func wantOnly(t *testing.T, path, text string) {
	t.Helper()
	if b, err := os.ReadFile(path); err != nil || string(b) != text {
		t.Errorf("%s holds %q, %v, want %q", path, b, err, text)
	}
	if entries, err := os.ReadDir(filepath.Dir(path)); err != nil || len(entries) != 1 {
		t.Errorf("the folder holds %v, %v, want one file", entries, err)
	}
}

func TestCommitNewDoesNotReplace(t *testing.T) {
	t.Parallel()
	for name, d := range map[string]disk.Disk{"system": disk.System{}, "plain": plain{disk.System{}}} {
		path := filepath.Join(t.TempDir(), "file")
		if err := create(t, d, path, "first").CommitNew(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if err := create(t, d, path, "second").CommitNew(); !errors.Is(err, fs.ErrExist) {
			t.Errorf("%s: over a file: %v, want ErrExist", name, err)
		}
		wantOnly(t, path, "first")
		if err := create(t, d, path, "third").Commit(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		wantOnly(t, path, "third")
		if err := create(t, d, path, "fourth").Discard(fs.ErrClosed); !errors.Is(err, fs.ErrClosed) {
			t.Errorf("%s: discard returns %v, want its cause", name, err)
		}
		wantOnly(t, path, "third")
	}
}

func TestMakeFolderAcceptsOnlyFolders(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]error{
		dir:                                      nil,
		filepath.Join(dir, "new"):                nil,
		filepath.Join(dir, "a", "b", "c"):        nil,
		filepath.Join(dir, "a", "..", "b") + "/": nil,
		file:                                     unix.ENOTDIR,
		filepath.Join(file, "below"):             unix.ENOTDIR,
	} {
		if err := disk.MakeFolder(disk.System{}, path); !errors.Is(err, want) {
			t.Errorf("MakeFolder(%s) = %v, want %v", path, err, want)
		}
		if info, err := os.Stat(path); want == nil && (err != nil || !info.IsDir()) {
			t.Errorf("%s: %v, %v", path, info, err)
		}
	}
}

func crashOperations() []disktest.Operation {
	treeFiles := []string{"model", "below/config", "below/of/tokens"} // of a folder that appears as a whole
	content := bytes.Repeat([]byte("0123456789abcdef"), 1000)
	staged := func(dir string) string { return filepath.Join(dir, ".staged") }
	trees := func(dir string) ([]string, error) { return filepath.Glob(filepath.Join(dir, "tree-*")) }
	return []disktest.Operation{
		{Name: "new file without a rename that does not replace", New: func(*rand.Rand) disktest.Case {
			return disktest.Case{
				Do: func(d disk.Disk, dir string) error {
					f, err := disk.Create(plain{d}, filepath.Join(dir, "file"), 0o644)
					if err != nil {
						return err
					}
					if _, err := f.Write(content); err != nil {
						return f.Discard(err)
					}
					err = f.CommitNew()
					if errors.Is(err, fs.ErrExist) { // by an earlier process
						err = disk.Sync(d, dir)
					}
					return err
				},
				Check: func(_ disk.Disk, dir string, done bool) error {
					return wantFile(filepath.Join(dir, "file"), content, done)
				},
			}
		}},
		{Name: "tree", New: func(*rand.Rand) disktest.Case {
			return disktest.Case{
				Do: func(d disk.Disk, dir string) error {
					if err := os.RemoveAll(staged(dir)); err != nil {
						return err
					}
					for _, name := range treeFiles {
						path := filepath.Join(staged(dir), name)
						if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
							return err
						}
						if err := os.WriteFile(path, content, 0o644); err != nil {
							return err
						}
					}
					if err := disk.SyncTree(d, staged(dir)); err != nil {
						return err
					}
					return disk.Rename(d, staged(dir), disktest.NewName(dir, "tree-"), true)
				},
				Check: func(_ disk.Disk, dir string, done bool) error {
					made, err := trees(dir)
					if done && len(made) == 0 {
						return errors.New("the tree is missing")
					}
					for _, tree := range made {
						for _, name := range treeFiles {
							err = errors.Join(err, wantFile(filepath.Join(tree, name), content, true))
						}
					}
					return err
				},
			}
		}},
	}
}

// wantFile fails unless the file has the content, or may be missing and is.
func wantFile(path string, want []byte, exists bool) error {
	got, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) && !exists {
		return nil
	}
	if err != nil || !bytes.Equal(got, want) {
		return fmt.Errorf("%s has %d bytes, %v, want %d", path, len(got), err, len(want))
	}
	return nil
}

func TestFilesSurvivePowerFailures(t *testing.T) {
	t.Parallel()
	disktest.TryEach(t, crashOperations())
}

func TestEachSyncOfFilesIsNeeded(t *testing.T) {
	t.Parallel()
	disktest.FindEverySync(t, crashOperations())
}
