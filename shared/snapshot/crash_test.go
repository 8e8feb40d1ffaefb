package snapshot_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"testing/fstest"

	"rollout/shared/clock"
	"rollout/shared/core/identity"
	"rollout/shared/disk"
	"rollout/shared/disk/disktest"
	"rollout/shared/memory"
	"rollout/shared/snapshot"
)

func restoring(t *testing.T) []disktest.Operation {
	s := snapshot.Store{Blobs: memory.NewBucket(clock.System{}), Docs: memory.NewDocuments(), Clock: clock.System{}}
	files := map[string][]byte{"model": bytes.Repeat([]byte("1"), 9000), "below/config": []byte("2")}
	folder := fstest.MapFS{}
	for name, content := range files {
		folder[name] = &fstest.MapFile{Data: content}
	}
	run := identity.RunID("01JD2ZQ4T5W0M1X9YB7R3K8CVE")
	snap, err := s.Save(t.Context(), folder, snapshot.Details{Run: run, Kind: snapshot.TrainState, Algorithm: "sft"})
	if err != nil {
		t.Fatal(err)
	}
	restored := func(dir string) ([]string, error) { return filepath.Glob(filepath.Join(dir, "restored-*")) }
	return []disktest.Operation{{Name: "restore", New: func(*rand.Rand) disktest.Case {
		return disktest.Case{
			Do: func(d disk.Disk, dir string) error {
				s := s
				s.Disk = d
				return s.Restore(context.Background(), snap, disktest.NewName(dir, "restored-"))
			},
			Check: func(_ disk.Disk, dir string, done bool) error {
				found, err := restored(dir)
				if done && len(found) == 0 {
					return errors.New("the restored folder is missing")
				}
				for _, folder := range found {
					for name, want := range files {
						if got, err := os.ReadFile(filepath.Join(folder, name)); err != nil || !bytes.Equal(got, want) {
							return fmt.Errorf("%s of %s has %d bytes, %v", name, folder, len(got), err)
						}
					}
				}
				return err
			},
		}
	}}}
}

func TestRestoredFoldersSurvivePowerFailures(t *testing.T) {
	t.Parallel()
	disktest.Try(t, restoring(t)[0])
}

func TestEachSyncOfRestoredFoldersIsNeeded(t *testing.T) {
	t.Parallel()
	disktest.FindEverySync(t, restoring(t))
}
