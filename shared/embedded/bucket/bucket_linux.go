package bucket

import (
	"strconv"

	"golang.org/x/sys/unix"

	"rollout/shared/embedded/internal/filesystem"
)

// openUnnamed creates a file without a name in the folder.
func openUnnamed(folder int) (int, error) {
	return unix.Openat(folder, ".", unix.O_TMPFILE|unix.O_RDWR|unix.O_CLOEXEC, 0o644)
}

// linkUnnamed gives an unnamed file a name. It fails with EEXIST if the name exists.
func linkUnnamed(fd, folder int, name string) error {
	return unix.Linkat(unix.AT_FDCWD, fdPath(fd), folder, name, unix.AT_SYMLINK_FOLLOW)
}

// supportsUnnamed reports whether unnamed files can be created and linked in the
// folder: the file system must support O_TMPFILE, and /proc must be mounted.
func supportsUnnamed(folder int) bool {
	fd, err := openUnnamed(folder)
	if err != nil {
		return false
	}
	defer unix.Close(fd) // nothing was written
	var st unix.Stat_t
	return unix.Stat(fdPath(fd), &st) == nil
}

// openBelow opens the path below the folder in one step, without following symbolic
// links. It fails with ENOSYS on kernels without openat2.
func openBelow(folder int, path string, flags uint64) (fd int, err error) {
	how := &unix.OpenHow{
		Flags:   flags | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_BENEATH,
	}
	err = filesystem.IgnoreEINTR(func() error {
		fd, err = unix.Openat2(folder, path, how)
		return err
	})
	return fd, err
}

// syncData makes the bytes of a file durable.
func syncData(fd int) error { return unix.Fdatasync(fd) }

// fdPath returns a path of an open file or folder.
func fdPath(fd int) string { return "/proc/self/fd/" + strconv.Itoa(fd) }
