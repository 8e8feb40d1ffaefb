package embedded

import (
	"strconv"

	"golang.org/x/sys/unix"
)

// renameNoReplace renames a file unless the new name is taken.
func renameNoReplace(fromFolder int, from string, toFolder int, to string) error {
	return unix.RenameatxNp(fromFolder, from, toFolder, to, unix.RENAME_EXCL)
}

// syncData hands a file's bytes to the disk; the file's last sync is the one
// that makes the disk write them (F_FULLFSYNC).
func syncData(fd int) error { return unix.Fsync(fd) }

// fdPath is a path that leads to an open folder.
func fdPath(fd int) string { return "/dev/fd/" + strconv.Itoa(fd) }
