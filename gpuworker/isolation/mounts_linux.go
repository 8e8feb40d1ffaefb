package isolation

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// The sandbox's file system, in its own mount namespace:
//
//	/                  a small tmpfs, read-only
//	/usr /bin /lib …   of the machine, read-only, without set-user-ID
//	/etc               written here; a few files of the machine, read-only
//	/dev               null, zero, full, random, urandom and tty of the machine; terminals of its own;
//	                   without a cgroup, zero is the device full
//	/proc              of its own pid namespace, read-only; processes of other users are hidden
//	/work /out /tmp /dev/shm   one tmpfs with the limits of bytes and files
//
// Everything else of the machine is not there. What is private of the worker and lies below one of
// these folders is covered.
const (
	scratchFolder = ".scratch"
	watchFolder   = ".proc" // of init alone
)

// scratchFolders are the folders of the tmpfs, and where they are shown.
var scratchFolders = []struct{ name, at string }{
	{"work", "work"}, {"out", "out"}, {"tmp", "tmp"}, {"shm", "dev/shm"},
}

// etcFiles are files of the machine's /etc that programs need: they say how to find libraries,
// and whom to trust.
var etcFiles = []string{
	"alternatives", "ld.so.cache", "ld.so.conf", "ld.so.conf.d", "localtime", "mime.types", "protocols", "services",
	"ssl/certs", "ssl/openssl.cnf", "pki/tls/certs", "pki/ca-trust", "ca-certificates", "magic",
}

// etcTexts are the files of /etc that are written.
var etcTexts = map[string]string{
	"passwd":        "root:x:0:0::/:/bin/false\nsandbox:x:1000:1000::/tmp:/bin/sh\n",
	"group":         "root:x:0:\nsandbox:x:1000:\n",
	"hosts":         "127.0.0.1 localhost sandbox\n::1 localhost\n",
	"hostname":      "sandbox\n",
	"resolv.conf":   "",
	"nsswitch.conf": "passwd: files\ngroup: files\nhosts: files\n",
}

// devices are the machine's devices that a command may use.
var devices = []string{"null", "zero", "full", "random", "urandom", "tty"}

// mountRoot makes the file system and enters it. It returns the folder of the tmpfs, and if
// samples are to be sent a /proc that shows all processes: the command's own hides those that
// execute a file that they may not read.
func mountRoot(s initSettings) (scratch, processes *os.File, err error) {
	root := s.Root
	steps := []struct {
		what string
		do   func() error
	}{
		{"keep mounts apart", func() error { return unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "") }},
		{"mount the root", func() error {
			return unix.Mount("tmpfs", root, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "size=4m,nr_inodes=4k,mode=755")
		}},
		{"show the system's folders", func() error { return showSystem(root) }},
		{"show the folders", func() error { return showFolders(root, s.Folders) }},
		{"write /etc", func() error { return writeEtc(filepath.Join(root, "etc")) }},
		{"hide what is private", func() error { return cover(root, s.Covers) }},
		{"show devices", func() error { return showDevices(filepath.Join(root, "dev"), s.Watch) }},
		{"mount /proc", func() error { return mountProc(filepath.Join(root, "proc"), "hidepid=2") }},
		{"mount the scratch folders", func() error { return mountScratch(root, s) }},
	}
	for _, step := range steps {
		if err := step.do(); err != nil {
			return nil, nil, fmt.Errorf("%s: %w", step.what, err)
		}
	}
	// The scratch file system itself is not shown: only its folders are.
	if scratch, err = takeHidden(root, scratchFolder); err != nil {
		return nil, nil, fmt.Errorf("hide the scratch file system: %w", err)
	}
	if s.Watch {
		if err = mountProc(filepath.Join(root, watchFolder), ""); err == nil {
			processes, err = takeHidden(root, watchFolder)
		}
		if err != nil {
			return nil, nil, fmt.Errorf("mount the /proc of samples: %w", err)
		}
	}
	if err := enter(root); err != nil {
		return nil, nil, fmt.Errorf("enter the root: %w", err)
	}
	return scratch, processes, nil
}

// takeHidden opens the root of a file system, and takes it out of the command's sight.
func takeHidden(root, name string) (*os.File, error) {
	at := filepath.Join(root, name)
	file, err := os.Open(at)
	if err != nil {
		return nil, err
	}
	if err = unix.Unmount(at, unix.MNT_DETACH); err == nil {
		err = os.Remove(at)
	}
	if err != nil {
		file.Close()
		return nil, err
	}
	return file, nil
}

// enter makes the folder the root, and lets go of the machine's.
func enter(root string) error {
	if err := unix.Chdir(root); err != nil {
		return err
	}
	if err := unix.PivotRoot(".", "."); err != nil { // the old root is on top of the new one
		return err
	}
	if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
		return err
	}
	return unix.Chdir("/")
}

// seal makes read-only what had to be writable until the launcher was started.
func seal() error {
	for _, at := range []string{"/proc", "/"} {
		if err := restrict(at, unix.MOUNT_ATTR_RDONLY, 0); err != nil {
			return fmt.Errorf("make %s read-only: %w", at, err)
		}
	}
	return unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0)
}

// restrict adds attributes to a mount, and with AT_RECURSIVE to those below it.
func restrict(at string, attributes uint64, flags uint) error {
	return unix.MountSetattr(unix.AT_FDCWD, at, flags, &unix.MountAttr{Attr_set: attributes})
}

// show binds a file or folder of the machine to a path in the root, read-only.
func show(from, to string, attributes uint64) error {
	info, err := os.Stat(from)
	if err != nil {
		return err
	}
	if info.IsDir() {
		err = os.MkdirAll(to, 0o755)
	} else if err = os.MkdirAll(filepath.Dir(to), 0o755); err == nil {
		err = os.WriteFile(to, nil, 0o644)
	}
	if err != nil {
		return err
	}
	if err := unix.Mount(from, to, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return &fs.PathError{Op: "bind", Path: from, Err: err}
	}
	return restrict(to, attributes, unix.AT_RECURSIVE)
}

const readOnly = unix.MOUNT_ATTR_RDONLY | unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV

func showSystem(root string) error {
	for _, name := range systemFolders {
		from, to := filepath.Join("/", name), filepath.Join(root, name)
		info, err := os.Lstat(from)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		if info.Mode()&os.ModeSymlink != 0 { // such as /bin -> usr/bin
			target, err := os.Readlink(from)
			if err != nil {
				return err
			}
			if err := os.Symlink(target, to); err != nil {
				return err
			}
			continue
		}
		if err := show(from, to, readOnly); err != nil {
			return err
		}
	}
	return nil
}

func showFolders(root string, folders []Folder) error {
	for _, f := range folders {
		if err := show(f.Host, filepath.Join(root, f.Inside), readOnly); err != nil {
			return err
		}
	}
	return nil
}

func writeEtc(etc string) error {
	if err := os.Mkdir(etc, 0o755); err != nil {
		return err
	}
	for name, text := range etcTexts {
		if err := os.WriteFile(filepath.Join(etc, name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	for _, name := range etcFiles {
		from := filepath.Join("/etc", name)
		if _, err := os.Stat(from); err != nil {
			continue // not every machine has each, and a user may not see all
		}
		if err := show(from, filepath.Join(etc, name), readOnly); err != nil {
			return err
		}
	}
	return os.Symlink("/proc/self/mounts", filepath.Join(etc, "mtab"))
}

// showDevices shows the devices. Where samples count memory, they would miss what is mapped
// shared from /dev/zero. There it is /dev/full, which has the same zeros and can't be mapped.
func showDevices(dev string, sampled bool) error {
	for _, name := range devices {
		from := filepath.Join("/dev", name)
		if sampled && name == "zero" {
			from = "/dev/full"
		}
		err := show(from, filepath.Join(dev, name), unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NOEXEC)
		if err != nil {
			return err
		}
	}
	pts := filepath.Join(dev, "pts")
	if err := os.Mkdir(pts, 0o755); err != nil {
		return err
	}
	err := unix.Mount("devpts", pts, "devpts", unix.MS_NOSUID|unix.MS_NOEXEC, "newinstance,ptmxmode=0666,mode=0620,max=64")
	if err != nil {
		return err
	}
	for name, target := range map[string]string{"ptmx": "pts/ptmx", "fd": "/proc/self/fd", "stdin": "/proc/self/fd/0",
		"stdout": "/proc/self/fd/1", "stderr": "/proc/self/fd/2"} {
		if err := os.Symlink(target, filepath.Join(dev, name)); err != nil {
			return err
		}
	}
	return nil
}

func mountProc(proc, options string) error {
	if err := os.Mkdir(proc, 0o755); err != nil {
		return err
	}
	flags := uintptr(unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC)
	return unix.Mount("proc", proc, "proc", flags, options)
}

func mountScratch(root string, s initSettings) error {
	scratch := filepath.Join(root, scratchFolder)
	if err := os.Mkdir(scratch, 0o700); err != nil {
		return err
	}
	// Its own folders and its root take inodes, which are not of the command's count.
	options := fmt.Sprintf("size=%d,nr_inodes=%d,mode=755", s.Disk, s.Files+int64(len(scratchFolders))+1)
	if err := unix.Mount("tmpfs", scratch, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, options); err != nil {
		return err
	}
	for _, f := range scratchFolders {
		from, to := filepath.Join(scratch, f.name), filepath.Join(root, f.at)
		mode := os.FileMode(0o755)
		if strings.HasSuffix(f.at, "shm") || f.name == "tmp" {
			mode = 0o777 | os.ModeSticky
		}
		err := errors.Join(os.Mkdir(from, 0o700), os.Chmod(from, mode), os.Lchown(from, s.Owner, s.Owner),
			os.MkdirAll(to, 0o755))
		if err != nil {
			return err
		}
		if err := unix.Mount(from, to, "", unix.MS_BIND, ""); err != nil {
			return &fs.PathError{Op: "bind", Path: to, Err: err}
		}
	}
	return nil
}
