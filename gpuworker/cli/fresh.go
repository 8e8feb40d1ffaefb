package cli

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
)

// runtimeVariable is the environment variable by which systemd names the runtime folder of a
// service. Only the unit of a rented machine has one: it is empty after each boot, and kept
// when the service starts again.
const runtimeVariable = "RUNTIME_DIRECTORY"

// fresh reports whether this is the first worker of the GPU since the machine was switched
// on: it leaves a file in the runtime folder. It is false without such a folder.
func (s *workplace) fresh(folder string, gpu int) bool {
	if folder == "" {
		return false
	}
	name := filepath.Join(folder, "worker"+strconv.Itoa(gpu))
	f, err := os.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err == nil {
		err = f.Close()
	}
	if err != nil && !errors.Is(err, fs.ErrExist) { // the boot is then missing in the costs of runs
		s.ports.Log.Warn("cannot note that a worker has started", "error", err)
	}
	return err == nil
}
