package disk

import (
	"strconv"

	"golang.org/x/sys/unix"
)

func createUnnamed(folder int, mode uint32) (int, error) {
	return unix.Openat(folder, ".", unix.O_TMPFILE|unix.O_RDWR|unix.O_CLOEXEC, mode)
}

func nameUnnamed(fd, folder int, name string) error {
	return unix.Linkat(unix.AT_FDCWD, PathOf(fd), folder, name, unix.AT_SYMLINK_FOLLOW)
}

func renameNoReplace(fromFolder int, from string, toFolder int, to string) error {
	return unix.Renameat2(fromFolder, from, toFolder, to, unix.RENAME_NOREPLACE)
}

func fullSync(fd int) error { return unix.Fsync(fd) }

// PathOf returns a path of an open file or folder.
func PathOf(fd int) string { return "/proc/self/fd/" + strconv.Itoa(fd) }
