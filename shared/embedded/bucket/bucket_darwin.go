package bucket

import (
	"strconv"

	"golang.org/x/sys/unix"
)

// There are no files without a name, and paths are opened step by step.
func openNameless(int) (int, error)              { return 0, unix.ENOTSUP }
func nameNameless(int, int, string) error        { return unix.ENOTSUP }
func canNameless(int) bool                       { return false }
func openBelow(int, string, uint64) (int, error) { return 0, unix.ENOSYS }

// syncData hands a file's bytes to the disk; the file's last sync is the one
// that makes the disk write them (F_FULLFSYNC).
func syncData(fd int) error { return unix.Fsync(fd) }

// fdPath is a path that leads to an open folder.
func fdPath(fd int) string { return "/dev/fd/" + strconv.Itoa(fd) }
