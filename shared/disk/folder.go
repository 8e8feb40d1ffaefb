package disk

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// MakeFolder creates the folder and those above it that are missing. When it returns,
// they are durable: also one that a process created which ended before it synced it.
func MakeFolder(d Disk, path string) error {
	path, err := filepath.Abs(path)
	if err != nil {
		return err
	}
	var missing []string
	at := path
	for {
		info, err := os.Stat(at)
		if err == nil && !info.IsDir() {
			return &fs.PathError{Op: "mkdir", Path: at, Err: unix.ENOTDIR}
		}
		if err == nil {
			break
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		missing = append(missing, at)
		at = filepath.Dir(at)
	}
	// Each folder is synced into the one above before the next one is created in it, so
	// of folders that exist only the last may not be durable.
	if err := Sync(d, filepath.Dir(at)); err != nil && !foreign(err) {
		return err
	}
	for i := len(missing) - 1; i >= 0; i-- {
		if err := d.Mkdir(AtWorkingDir, missing[i]); err != nil && err != unix.EEXIST {
			return &fs.PathError{Op: "mkdir", Path: missing[i], Err: err}
		}
		if err := Sync(d, filepath.Dir(missing[i])); err != nil {
			return err
		}
	}
	return nil
}

// foreign reports whether a folder cannot be synced because it belongs to somebody
// else, who made its entries durable.
func foreign(err error) bool {
	return errors.Is(err, fs.ErrPermission) || errors.Is(err, unix.EROFS)
}

// Sync makes the names in a folder durable: created, renamed and removed ones.
func Sync(d Disk, path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close() // opened for reading; closing cannot lose data
	return pathError("sync", path, d.Sync(int(f.Fd())))
}

// SyncTree makes a folder of regular files and folders durable, except its own name.
func SyncTree(d Disk, path string) error {
	return filepath.WalkDir(path, func(at string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return Sync(d, at)
	})
}

// Rename renames a file or folder whose content is durable. When it returns, the new
// name is durable. Unless it may replace, it fails with an fs.ErrExist if the new name
// exists.
func Rename(d Disk, from, to string, replace bool) error {
	if err := d.Rename(AtWorkingDir, from, AtWorkingDir, to, replace); err != nil {
		return &os.LinkError{Op: "rename", Old: from, New: to, Err: err}
	}
	return Sync(d, filepath.Dir(to))
}

func pathError(op, path string, err error) error {
	if err == nil {
		return nil
	}
	return &fs.PathError{Op: op, Path: path, Err: err}
}
