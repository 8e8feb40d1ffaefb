package disk

import (
	"strconv"

	"golang.org/x/sys/unix"
)

// Darwin has no unnamed files.
func createUnnamed(int, uint32) (int, error) { return 0, unix.ENOTSUP }
func nameUnnamed(int, int, string) error     { return unix.ENOTSUP }

func renameNoReplace(fromFolder int, from string, toFolder int, to string) error {
	return unix.RenameatxNp(fromFolder, from, toFolder, to, unix.RENAME_EXCL)
}

// fullSync makes the drive write its cache. Darwin's fsync passes the bytes only to the
// drive, which may lose or reorder them. Shares of other machines have fsync alone.
func fullSync(fd int) error {
	_, err := unix.FcntlInt(uintptr(fd), unix.F_FULLFSYNC, 0)
	if err == unix.ENOTSUP || err == unix.ENOTTY || err == unix.EINVAL {
		return unix.Fsync(fd)
	}
	return err
}

// PathOf returns a path of an open file or folder.
func PathOf(fd int) string { return "/dev/fd/" + strconv.Itoa(fd) }
