package embedded

import (
	"strconv"

	"golang.org/x/sys/unix"
)

// renameNoReplace renames a file unless the new name is taken.
func renameNoReplace(fromFolder int, from string, toFolder int, to string) error {
	return unix.Renameat2(fromFolder, from, toFolder, to, unix.RENAME_NOREPLACE)
}

// syncData makes a file's bytes durable.
func syncData(fd int) error { return unix.Fdatasync(fd) }

// fdPath is a path that leads to an open folder.
func fdPath(fd int) string { return "/proc/self/fd/" + strconv.Itoa(fd) }
