package bucket

import (
	"rollout/shared/embedded/internal/filesystem"
	"strconv"

	"golang.org/x/sys/unix"
)

// openNameless makes a file without a name in the folder.
func openNameless(folder int) (int, error) {
	return unix.Openat(folder, ".", unix.O_TMPFILE|unix.O_RDWR|unix.O_CLOEXEC, 0o644)
}

// nameNameless gives such a file a name that nobody has.
func nameNameless(fd, folder int, name string) error {
	return unix.Linkat(unix.AT_FDCWD, fdPath(fd), folder, name, unix.AT_SYMLINK_FOLLOW)
}

// canNameless reports whether both can be done in the folder: the file system
// must know such files, and /proc must be there to name them by.
func canNameless(folder int) bool {
	fd, err := openNameless(folder)
	if err != nil {
		return false
	}
	defer unix.Close(fd) // nothing was written
	var st unix.Stat_t
	return unix.Stat(fdPath(fd), &st) == nil
}

// openBelow opens what is at the path below the folder, if no link leads
// there, in one step. Where the kernel can't, that is ENOSYS.
func openBelow(folder int, path string, flags uint64) (fd int, err error) {
	err = filesystem.IgnoreEINTR(func() error {
		fd, err = unix.Openat2(folder, path, &unix.OpenHow{Flags: flags | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_BENEATH})
		return err
	})
	return fd, err
}

// syncData makes a file's bytes durable.
func syncData(fd int) error { return unix.Fdatasync(fd) }

// fdPath is a path that leads to an open folder.
func fdPath(fd int) string { return "/proc/self/fd/" + strconv.Itoa(fd) }
