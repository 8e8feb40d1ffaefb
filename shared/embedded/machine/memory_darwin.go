package machine

import (
	"errors"
	"io/fs"

	"golang.org/x/sys/unix"
)

// totalMemory returns the machine's memory in bytes: as /proc/meminfo says
// where the files have one, else as the kernel does.
func totalMemory(files fs.FS) (uint64, error) {
	bytes, err := meminfoTotal(files)
	if errors.Is(err, fs.ErrNotExist) {
		return unix.SysctlUint64("hw.memsize")
	}
	return bytes, err
}
