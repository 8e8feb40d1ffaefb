package bucket

import (
	"strconv"

	"golang.org/x/sys/unix"
)

// Darwin supports neither unnamed files nor opening a path in one step without
// following links.
func openUnnamed(int) (int, error)               { return 0, unix.ENOTSUP }
func linkUnnamed(int, int, string) error         { return unix.ENOTSUP }
func supportsUnnamed(int) bool                   { return false }
func openBelow(int, string, uint64) (int, error) { return 0, unix.ENOSYS }

// syncData passes the bytes of a file to the disk. Only the file's last sync
// (F_FULLFSYNC) makes the disk write them.
func syncData(fd int) error { return unix.Fsync(fd) }

// fdPath returns a path of an open file or folder.
func fdPath(fd int) string { return "/dev/fd/" + strconv.Itoa(fd) }
