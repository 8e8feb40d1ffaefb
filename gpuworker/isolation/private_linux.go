package isolation

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"rollout/shared/fault"
)

// covers returns the paths in the sandbox at which private files and folders of the worker would
// stand, since they lie below a folder that the command sees. What does not exist is not there. A
// private folder that has a folder that commands see is Denied, and at the level Trusted each is:
// Landlock permits a folder with all that it has.
func (s *Sandbox) covers(level Level, c Command) ([]string, error) {
	seen := slices.Clone(c.Folders)
	for _, name := range systemFolders {
		at := filepath.Join("/", name)
		if info, err := os.Lstat(at); err == nil && info.IsDir() { // a link is shown as a link
			seen = append(seen, Folder{Host: at, Inside: at})
		}
	}
	for _, name := range etcFiles {
		at := filepath.Join("/etc", name)
		seen = append(seen, Folder{Host: at, Inside: at})
	}
	var found []string
	for _, private := range s.private {
		real, err := realPath(private)
		if err != nil {
			return nil, err
		}
		for _, f := range seen {
			host, err := realPath(f.Host)
			switch below, isBelow := relative(host, real); {
			case err != nil:
				return nil, err
			case real == "" || host == "":
			case host == real || has(real, host):
				return nil, fault.New(fault.Denied, "the worker's folder %s has %s, which commands see: move it", private, f.Host)
			case isBelow && level != Full:
				return nil, fault.New(fault.Denied, "commands see %s, which has the worker's %s: move it", f.Host, private)
			case isBelow:
				found = append(found, filepath.Join(f.Inside, below))
			}
		}
	}
	slices.Sort(found)
	return slices.Compact(found), nil
}

// absolute returns the paths from the root.
func absolute(paths []string) (list []string, err error) {
	for _, path := range paths {
		at, pathErr := filepath.Abs(path)
		list, err = append(list, at), errors.Join(err, pathErr)
	}
	return list, err
}

// realPath returns the path without links; "" if it does not exist.
func realPath(path string) (string, error) {
	real, err := filepath.EvalSymlinks(path)
	if errors.Is(err, os.ErrNotExist) {
		return "", nil
	}
	return real, fault.WithKind(fault.Denied, err, "find what commands must not see")
}

// relative returns the path of what lies below a folder.
func relative(folder, path string) (string, bool) {
	if !has(folder, path) {
		return "", false
	}
	return strings.TrimPrefix(path[len(folder):], "/"), true
}

// has reports whether the path lies below the folder. Both are clean and absolute.
func has(folder, path string) bool {
	return path != folder && strings.HasPrefix(path, strings.TrimSuffix(folder, "/")+"/")
}

// cover hides files and folders of the root: an empty folder is in a folder's place, and in a file's
// a device that cannot be opened.
func cover(root string, paths []string) error {
	for _, path := range paths {
		at := filepath.Join(root, path)
		info, err := os.Lstat(at)
		switch {
		case errors.Is(err, os.ErrNotExist): // it was removed meanwhile, or stands in a folder that is covered
			continue
		case err != nil:
			return err
		case info.IsDir():
			err = unix.Mount("tmpfs", at, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC|unix.MS_RDONLY,
				"size=4k,nr_inodes=2,mode=555")
		default:
			if err = unix.Mount("/dev/null", at, "", unix.MS_BIND, ""); err == nil {
				err = restrict(at, readOnly|unix.MOUNT_ATTR_NOEXEC, 0)
			}
		}
		if err != nil {
			return fmt.Errorf("cover %s: %w", path, err)
		}
	}
	return nil
}
