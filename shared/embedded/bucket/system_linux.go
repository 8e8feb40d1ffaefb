package bucket

import (
	"golang.org/x/sys/unix"

	"rollout/shared/disk"
)

// openBelow opens the path below the folder in one step, without following symbolic
// links. It fails with ENOSYS on kernels without openat2.
func openBelow(folder int, path string, flags uint64) (fd int, err error) {
	how := &unix.OpenHow{
		Flags:   flags | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_BENEATH,
	}
	err = disk.IgnoreEINTR(func() error {
		fd, err = unix.Openat2(folder, path, how)
		return err
	})
	return fd, err
}

// writeBack passes the bytes of a file to the disk.
func writeBack(fd int) error { return unix.Fdatasync(fd) }
