package isolation

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"

	"rollout/shared/fault"
)

// Each command has a slot while it runs: a numbered folder with a file that its worker keeps
// locked. A slot whose file is not locked is what a killed worker has left; the next Open
// removes it with the cgroups that it names. A lock on the whole folder keeps those who make
// slots and those who remove them apart.
const (
	lockName    = "lock"
	cgroupsName = "cgroups.json" // a list of folders
	rootName    = "root"
	// maxSlots is how many commands may run on a machine at once. Each has a user of its own
	// from the range of users that systemd gives to services for a while.
	maxSlots  = 4096
	firstUser = 61184
)

// slot is the right to run a command.
type slot struct {
	number int
	dir    string
	lock   *os.File
}

// user is the user and group of the command on the machine, if the worker may choose one.
func (s slot) user() int { return firstUser + s.number }

// name names what belongs to the slot outside of its folder.
func (s slot) name() string {
	folder := fnv.New64a()
	folder.Write([]byte(filepath.Dir(s.dir))) // others have the same numbers
	return fmt.Sprintf("rollout-trial-%x-%d", folder.Sum64(), s.number)
}

// openFolder makes the folder of the slots, for this user alone.
func openFolder(dir string) error {
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o711); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	var stat unix.Stat_t
	if err := unix.Lstat(dir, &stat); err != nil {
		return err
	}
	if stat.Mode&unix.S_IFMT != unix.S_IFDIR || int(stat.Uid) != os.Geteuid() || stat.Mode&0o022 != 0 {
		return fault.New(fault.Denied, "%s is not a folder that this user alone may write to", dir)
	}
	return nil
}

// locked runs do while no other process makes or removes slots.
func locked(dir string, do func() error) error {
	file, err := os.OpenFile(filepath.Join(dir, lockName), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	defer file.Close() // unlocks it
	if err := unix.Flock(int(file.Fd()), unix.LOCK_EX); err != nil {
		return err
	}
	return do()
}

// acquireSlot takes the first free number, and records which cgroups will belong to it.
func acquireSlot(dir string, h hierarchies) (s slot, err error) {
	err = locked(dir, func() error {
		for n := range maxSlots {
			s = slot{number: n, dir: filepath.Join(dir, strconv.Itoa(n))}
			if err := os.Mkdir(s.dir, 0o711); errors.Is(err, fs.ErrExist) {
				continue
			} else if err != nil {
				return err
			}
			if err := s.open(h); err != nil {
				return errors.Join(err, s.release()) // such as on a full disk
			}
			return nil
		}
		return fault.New(fault.Exhausted, "%d commands run on this machine already", maxSlots)
	})
	return s, fault.WithKind(kindOr(err, fault.Unavailable), err, "prepare a sandbox")
}

func (s *slot) open(h hierarchies) error {
	file, err := os.OpenFile(filepath.Join(s.dir, lockName), os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	s.lock = file
	names, err := json.Marshal(h.inside(s.name()).folders())
	return errors.Join(err, unix.Flock(int(file.Fd()), unix.LOCK_EX), os.Mkdir(filepath.Join(s.dir, rootName), 0o711),
		os.WriteFile(filepath.Join(s.dir, cgroupsName), names, 0o600))
}

// release removes the slot.
func (s slot) release() error {
	err := removeAll(s.dir)
	s.lock.Close() // an error without effect if the slot was never open
	return fault.WithKind(fault.Unavailable, err, "remove a sandbox")
}

// removeLeftovers removes the slots of workers that were killed.
func removeLeftovers(dir string) error {
	return locked(dir, func() error {
		entries, err := os.ReadDir(dir)
		if err != nil {
			return err
		}
		var problems []error
		for _, entry := range entries {
			if entry.IsDir() {
				problems = append(problems, removeLeftover(filepath.Join(dir, entry.Name())))
			}
		}
		return errors.Join(problems...)
	})
}

func removeLeftover(dir string) error {
	file, err := os.OpenFile(filepath.Join(dir, lockName), os.O_RDWR, 0)
	if err == nil {
		defer file.Close()
		if unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB) != nil {
			return nil // its worker is alive
		}
	}
	if text, err := os.ReadFile(filepath.Join(dir, cgroupsName)); err == nil {
		var folders []string
		if err := json.Unmarshal(text, &folders); err == nil {
			for _, folder := range folders {
				if err := (cgroup{hierarchies{unified: folder}}).remove(); err != nil {
					return err
				}
			}
		}
	}
	return removeAll(dir)
}

// removeAll removes a folder whose files may have been a command's, which may have taken this
// user's rights to them.
func removeAll(dir string) error {
	if err := os.RemoveAll(dir); err == nil {
		return nil
	}
	// Links are not followed: WalkDir does not, and what is not a folder is left alone.
	_ = filepath.WalkDir(dir, func(path string, entry fs.DirEntry, _ error) error {
		if entry != nil && entry.IsDir() {
			_ = os.Chmod(path, 0o700)
		}
		return nil
	})
	return os.RemoveAll(dir)
}

// kindOr returns the kind of an error that has one, else the other.
func kindOr(err error, other fault.Kind) fault.Kind {
	if k := fault.KindOf(err); k != fault.Internal {
		return k
	}
	return other
}
