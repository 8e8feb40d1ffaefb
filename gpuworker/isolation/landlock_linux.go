package isolation

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// landlockTrusted is the version of Landlock that the level Trusted needs: the first that keeps
// signals and abstract sockets in. TCP ports came with version 4.
const landlockTrusted = 6

// landlockFull is the version that is of use at the level Full: the first that permits to move
// files between folders.
const landlockFull = 2

// Rights of Landlock, in groups.
const (
	landlockReadFile = unix.LANDLOCK_ACCESS_FS_EXECUTE | unix.LANDLOCK_ACCESS_FS_READ_FILE
	landlockRead     = landlockReadFile | unix.LANDLOCK_ACCESS_FS_READ_DIR
	landlockDevice   = landlockReadFile | unix.LANDLOCK_ACCESS_FS_WRITE_FILE | unix.LANDLOCK_ACCESS_FS_TRUNCATE |
		unix.LANDLOCK_ACCESS_FS_IOCTL_DEV
	landlockAll = unix.LANDLOCK_ACCESS_FS_IOCTL_DEV<<1 - 1 // what version 5 knows
)

// landlockFiles returns the rights to files that a version of Landlock limits.
func landlockFiles(version int) uint64 {
	switch {
	case version >= 5:
		return landlockAll
	case version >= 3:
		return landlockAll &^ unix.LANDLOCK_ACCESS_FS_IOCTL_DEV
	}
	return landlockAll &^ (unix.LANDLOCK_ACCESS_FS_IOCTL_DEV | unix.LANDLOCK_ACCESS_FS_TRUNCATE)
}

// landlockVersion returns the version that the kernel has; 0 is none.
func landlockVersion() int {
	version, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	if errno != 0 {
		return 0
	}
	return int(version)
}

// ruleset is a set of Landlock's rules for one thread.
type ruleset struct {
	fd    int
	files uint64 // the rights that it limits
}

// newRuleset returns one that permits nothing of what it limits: files, at the level Trusted
// also TCP, and signals and abstract sockets that lead out.
func newRuleset(level Level, version int) (ruleset, error) {
	attr := unix.LandlockRulesetAttr{Handled_access_fs: landlockFiles(version)}
	if level == Trusted { // the level Full has a network of its own
		attr.Handled_access_net = unix.LANDLOCK_ACCESS_NET_BIND_TCP | unix.LANDLOCK_ACCESS_NET_CONNECT_TCP
	}
	if version >= 6 {
		attr.Scoped = unix.LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET | unix.LANDLOCK_SCOPE_SIGNAL
	}
	// A kernel that does not know the last fields accepts them as long as they are 0.
	fd, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&attr)), unsafe.Sizeof(attr), 0)
	if errno != 0 {
		return ruleset{}, fmt.Errorf("make a set of rules: %w", errno)
	}
	return ruleset{fd: int(fd), files: attr.Handled_access_fs}, nil
}

// allow permits what the rights say below a path, as far as they apply to it.
func (r ruleset) allow(rights uint64, path string) error {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENOENT) {
		return nil // not every machine has each
	}
	if err != nil {
		return &os.PathError{Op: "open", Path: path, Err: err}
	}
	defer unix.Close(fd)
	var stat unix.Stat_t
	if err := unix.Fstat(fd, &stat); err != nil {
		return &os.PathError{Op: "stat", Path: path, Err: err}
	}
	if stat.Mode&unix.S_IFMT != unix.S_IFDIR {
		rights &= landlockDevice // all that there is of files
	}
	attr := unix.LandlockPathBeneathAttr{Allowed_access: rights & r.files, Parent_fd: int32(fd)}
	return r.add(unix.LANDLOCK_RULE_PATH_BENEATH, unsafe.Pointer(&attr), path)
}

// allowPort permits to connect to a TCP port.
func (r ruleset) allowPort(port int) error {
	const rulePort = 2 // LANDLOCK_RULE_NET_PORT
	var attr [16]byte  // struct landlock_net_port_attr: the right, the port
	binary.NativeEndian.PutUint64(attr[:], unix.LANDLOCK_ACCESS_NET_CONNECT_TCP)
	binary.NativeEndian.PutUint64(attr[8:], uint64(port))
	return r.add(rulePort, unsafe.Pointer(&attr), "a port")
}

func (r ruleset) add(kind uintptr, attr unsafe.Pointer, of string) error {
	_, _, errno := unix.Syscall6(unix.SYS_LANDLOCK_ADD_RULE, uintptr(r.fd), kind, uintptr(attr), 0, 0, 0)
	if errno != 0 {
		return fmt.Errorf("add a rule for %s: %w", of, errno)
	}
	return nil
}

// restrictPaths limits this thread, and what it executes, to the paths of the settings, and at
// the level Trusted to their ports.
//
// It makes the system calls itself: go-landlock restricts all threads of a process, for which
// it links libpsx, and here one thread is left.
func restrictPaths(s launcherSettings) error {
	if s.Landlock == 0 {
		return nil
	}
	rules, err := newRuleset(s.Level, s.Landlock)
	if err != nil {
		return err
	}
	defer unix.Close(rules.fd)
	for _, group := range []struct {
		rights uint64
		paths  []string
	}{{landlockRead, s.ReadOnly}, {landlockAll, s.Writable}, {landlockDevice, s.Devices}} {
		for _, path := range group.paths {
			if err := rules.allow(group.rights, path); err != nil {
				return err
			}
		}
	}
	if s.Level == Trusted {
		for _, port := range s.Ports {
			if err := rules.allowPort(port); err != nil {
				return err
			}
		}
	}
	if _, _, errno := unix.Syscall(unix.SYS_LANDLOCK_RESTRICT_SELF, uintptr(rules.fd), 0, 0); errno != 0 {
		return fmt.Errorf("restrict this thread: %w", errno)
	}
	return nil
}
