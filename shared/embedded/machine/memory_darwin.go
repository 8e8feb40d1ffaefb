package machine

import (
	"errors"
	"io/fs"

	"golang.org/x/sys/unix"
)

// totalMemory returns the machine's memory in bytes, from /proc/meminfo if the files
// have it, else from the kernel.
func totalMemory(files fs.FS) (uint64, error) {
	bytes, err := meminfoTotal(files)
	if errors.Is(err, fs.ErrNotExist) {
		return unix.SysctlUint64("hw.memsize")
	}
	return bytes, err
}
