package filesystem

import (
	"errors"
	"os"
)

// SyncFolder syncs a folder, so that created, renamed and removed names in it
// survive a crash of the machine.
func SyncFolder(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return Fault(err, "open the state folder %s", dir)
	}
	err = Fault(f.Sync(), "sync the state folder %s", dir)
	return errors.Join(err, f.Close())
}
