package disk

import (
	"errors"

	"golang.org/x/sys/unix"
)

// AtWorkingDir is the folder that relative paths are relative to. With it, a name may
// be any path.
const AtWorkingDir = unix.AT_FDCWD

// Mkdir implements Disk.
func (System) Mkdir(folder int, name string) error { return unix.Mkdirat(folder, name, 0o755) }

// Create implements Disk.
func (System) Create(folder int, name string, mode uint32) (fd int, err error) {
	err = IgnoreEINTR(func() error {
		if name == "" {
			fd, err = createUnnamed(folder, mode)
			return err
		}
		fd, err = unix.Openat(folder, name, unix.O_RDWR|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, mode)
		return err
	})
	return fd, err
}

// Name implements Disk.
func (System) Name(fd, folder int, name string) error { return nameUnnamed(fd, folder, name) }

// Link implements Disk.
func (System) Link(fromFolder int, from string, toFolder int, to string) error {
	return unix.Linkat(fromFolder, from, toFolder, to, 0)
}

// Rename implements Disk.
func (System) Rename(fromFolder int, from string, toFolder int, to string, replace bool) error {
	if replace {
		return unix.Renameat(fromFolder, from, toFolder, to)
	}
	return renameNoReplace(fromFolder, from, toFolder, to)
}

// Remove implements Disk.
func (System) Remove(folder int, name string, isFolder bool) error {
	flags := 0
	if isFolder {
		flags = unix.AT_REMOVEDIR
	}
	return unix.Unlinkat(folder, name, flags)
}

// Sync implements Disk. Some file systems, such as shares of other machines, cannot
// sync a folder: they keep its names without it, or not at all.
func (System) Sync(fd int) error {
	err := IgnoreEINTR(func() error { return fullSync(fd) })
	var st unix.Stat_t
	if err == unix.EINVAL && unix.Fstat(fd, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFDIR {
		return nil
	}
	return err
}

// SupportsUnnamed reports whether files without a name can be created and named in the
// open folder: the file system must support O_TMPFILE, and /proc must be mounted.
func SupportsUnnamed(folder int) bool {
	fd, err := createUnnamed(folder, 0o600)
	if err != nil {
		return false
	}
	defer unix.Close(fd) // nothing was written
	var st unix.Stat_t
	return unix.Stat(PathOf(fd), &st) == nil
}

// IgnoreEINTR repeats a system call as long as a signal interrupts it.
func IgnoreEINTR(call func() error) error {
	for {
		if err := call(); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}
