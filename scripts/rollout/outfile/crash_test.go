package outfile

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"rollout/shared/disk"
	"rollout/shared/disk/disktest"
)

// files are the files of a batch, in the order in which it writes them.
var files = []string{"completions.jsonl", "errors.jsonl", "summary.json"}

// crashOperations write the output folder of a batch: its run id, and its files in new
// folders, over older ones, or as new files.
func crashOperations() []disktest.Operation {
	content := func(name, version string) []byte { return bytes.Repeat([]byte(name+" "+version+"\n"), 500) }
	folder := func(dir string) string { return filepath.Join(dir, "out", "of", "batch") }
	write := func(version string) func(d disk.Disk, dir string) error {
		return func(d disk.Disk, dir string) error {
			if err := disk.MakeFolder(d, folder(dir)); err != nil {
				return err
			}
			for _, name := range files {
				if err := writeBytes(d, filepath.Join(folder(dir), name), content(name, version)); err != nil {
					return err
				}
			}
			return nil
		}
	}
	// check wants each file complete, in one of the versions, and none before the earlier ones.
	check := func(dir string, versions ...string) error {
		missing := ""
		for _, name := range files {
			b, err := os.ReadFile(filepath.Join(folder(dir), name))
			found := errors.Is(err, fs.ErrNotExist) && versions[0] == ""
			if found {
				missing = name
			}
			for _, version := range versions {
				found = found || err == nil && missing == "" && bytes.Equal(b, content(name, version))
			}
			if !found {
				return fmt.Errorf("%s has %d bytes, %v, want one of %q; missing: %s", name, len(b), err, versions, missing)
			}
		}
		return nil
	}
	return []disktest.Operation{
		{Name: "write", New: func(*rand.Rand) disktest.Case {
			return disktest.Case{Do: write("new"), Check: func(_ disk.Disk, dir string, done bool) error {
				if done {
					return check(dir, "new")
				}
				return check(dir, "", "new")
			}}
		}},
		{Name: "replace", New: func(*rand.Rand) disktest.Case {
			return disktest.Case{Prepare: write("old"), Do: write("new"),
				Check: func(_ disk.Disk, dir string, done bool) error {
					if done {
						return check(dir, "new")
					}
					return check(dir, "old", "new")
				}}
		}},
		{Name: "new file", New: func(*rand.Rand) disktest.Case {
			made := func(dir string) ([]string, error) { return filepath.Glob(filepath.Join(dir, "new-*")) }
			return disktest.Case{
				Do: func(d disk.Disk, dir string) error {
					f, err := create(d, disktest.NewName(dir, "new-"), 0o600)
					if err != nil {
						return err
					}
					if _, err := f.Write(content("new", "")); err != nil {
						return f.Discard(err)
					}
					return f.CloseAndRenameNew()
				},
				Check: func(_ disk.Disk, dir string, done bool) error {
					found, err := made(dir)
					if done && len(found) == 0 {
						return errors.New("the new file is missing")
					}
					for _, path := range found {
						if b, err := os.ReadFile(path); err != nil || !bytes.Equal(b, content("new", "")) {
							return fmt.Errorf("%s has %d bytes, %v", path, len(b), err)
						}
					}
					return err
				},
			}
		}},
		{Name: "run id", New: func(*rand.Rand) disktest.Case {
			const id = "01JD2ZQ4T5W0M1X9YB7R3K8CVE"
			return disktest.Case{
				Do: func(d disk.Disk, dir string) error {
					return errors.Join(disk.MakeFolder(d, folder(dir)), writeRunID(d, folder(dir), id))
				},
				Check: func(_ disk.Disk, dir string, done bool) error {
					got, err := ReadRunID(folder(dir))
					if got != id && (done || got != "") {
						err = errors.Join(err, fmt.Errorf("the run id is %q", got))
					}
					return err
				},
			}
		}},
	}
}

func TestFilesSurvivePowerFailures(t *testing.T) {
	t.Parallel()
	disktest.TryEach(t, crashOperations())
}

func TestEachSyncOfFilesIsNeeded(t *testing.T) {
	t.Parallel()
	disktest.FindEverySync(t, crashOperations())
}
