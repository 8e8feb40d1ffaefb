package outfile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"rollout/shared/core/identity"
	"rollout/shared/disk"
	"rollout/shared/fault"
)

// runIDFile is the file in an output folder that names its run. It holds the id and a newline.
const runIDFile = "run-id"

// ReadRunID returns the run that the output folder belongs to, or "" if the folder has no run-id file. A file without
// a valid id is Invalid.
func ReadRunID(folder string) (identity.RunID, error) {
	path := filepath.Join(folder, runIDFile)
	b, err := os.ReadFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", nil
	case err != nil:
		return "", fault.WithKind(fault.Invalid, err, "read the run id")
	}
	id := identity.RunID(strings.TrimSpace(string(b)))
	if !id.Valid() {
		return "", &fault.Error{Kind: fault.Invalid, Err: fmt.Errorf("%s does not contain a run id", path),
			Remedy: "remove it to start a new run, or name what to continue with --resume"}
	}
	return id, nil
}

// WriteRunID records the run in the output folder, which must exist.
func WriteRunID(folder string, id identity.RunID) error {
	return writeRunID(disk.System{}, folder, id)
}

func writeRunID(d disk.Disk, folder string, id identity.RunID) error {
	return writeBytes(d, filepath.Join(folder, runIDFile), []byte(string(id)+"\n"))
}
