package isolation

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"rollout/shared/fault"
)

// Sandbox runs commands, each apart from the machine and from all others. It is safe for
// concurrent use, by several processes with the same folder as well.
type Sandbox struct {
	dir     string
	private []string
	groups  hierarchies

	mu     sync.Mutex
	probed time.Time // zero before the first probe
	level  Level
	reason string
	// highest is the highest level to use; tests lower it.
	highest Level
	// landlock is the version of Landlock to use at most; tests lower it.
	landlock int
}

// probeAgain is how long a level that is not the highest stays the answer.
const probeAgain = time.Minute

// Open returns a sandbox whose bookkeeping is in the folder dir, which it makes; the folder must
// be on a disk of this machine. It removes what workers have left there that were killed. No
// command sees dir or what the paths in private name, wherever it stands.
func Open(dir string, private ...string) (*Sandbox, error) {
	private, err := absolute(append(private, dir))
	if err == nil {
		err = openFolder(dir)
	}
	if err == nil {
		err = removeLeftovers(dir)
	}
	if err != nil {
		return nil, fault.WithKind(kindOr(err, fault.Unavailable), err, "open the sandbox's folder %s", dir)
	}
	return &Sandbox{dir: dir, private: private, groups: findHierarchies(), highest: Full, landlock: landlockVersion()}, nil
}

// Probe returns the highest level that this machine permits, and why not a higher one. It tries
// with a command that does nothing. The level Full stays the answer. A lower one stays for a
// minute, since a machine that is short of something may have it later.
func (s *Sandbox) Probe(ctx context.Context) (Level, string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.probed.IsZero() && (s.level == Full || time.Since(s.probed) < probeAgain) {
		return s.level, s.reason
	}
	var reasons []error
	level := Refused
	for _, try := range []Level{Full, Trusted} {
		if err := s.try(ctx, try); err != nil {
			reasons = append(reasons, fmt.Errorf("%s: %w", try, err))
			continue
		}
		level = try
		break
	}
	reason := ""
	if err := errors.Join(reasons...); err != nil {
		reason = err.Error()
	}
	if ctx.Err() != nil {
		return Refused, reason
	}
	s.probed, s.level, s.reason = time.Now(), level, reason
	return level, reason
}

// try sets up everything of a level.
func (s *Sandbox) try(ctx context.Context, level Level) error {
	if level > s.highest {
		return errors.New("not wanted")
	}
	if level == Trusted {
		switch version := s.landlock; {
		case version < landlockTrusted:
			return fmt.Errorf("the kernel has version %d of Landlock, and version %d is needed", version, landlockTrusted)
		case s.groups.version == 0 || s.groups.unified == "":
			return errors.New("this user may make no cgroup with limits and cgroup.kill")
		}
	}
	probe := Command{Args: []string{"probe"}, Limits: Limits{Wall: 1 << 40, CPU: 1 << 40, Memory: 256 << 20, Processes: 64,
		Output: 1 << 16, Keep: 1 << 12, Disk: 1 << 20, Files: 64, OutFiles: 1, OutBytes: 1}}
	o, err := s.run(ctx, probe, level, true)
	if err != nil {
		return err
	}
	if o.Verdict != Exited || o.ExitCode != 0 {
		return fmt.Errorf("a command that does nothing ended with %s: %s", o.Verdict, o.Reason)
	}
	return nil
}

// Run runs the command until it has ended and none of its processes is left. It returns an
// error only if that says nothing about the command: a malformed command is Invalid, a level
// that this machine does not permit Denied, a context that has ended Canceled, with the outcome
// so far, and a machine that lacks something Unavailable or Exhausted. Everything else is the
// outcome's verdict.
func (s *Sandbox) Run(ctx context.Context, c Command) (Outcome, error) {
	if err := c.check(); err != nil {
		return Outcome{}, fault.WithKind(fault.Invalid, err, "run a command in a sandbox")
	}
	level, reason := s.Probe(ctx)
	switch {
	case ctx.Err() != nil:
		return Outcome{Verdict: Canceled}, fault.Wrap(ctx.Err(), "run a command in a sandbox")
	case level == Refused:
		return Outcome{}, fault.New(fault.Denied, "this machine cannot isolate commands: %s", reason)
	case level == Trusted && !c.Trusted:
		return Outcome{}, fault.New(fault.Denied, "this machine isolates trusted commands only: %s", reason)
	}
	return s.run(ctx, c, level, false)
}

// Room returns an Exhausted error if the disk of the sandbox's folder is full: no command could
// leave its files there.
func (s *Sandbox) Room() error {
	full, err := diskFull(s.dir)
	switch {
	case err != nil:
		return fault.WithKind(fault.Unavailable, err, "look at the disk of %s", s.dir)
	case full:
		return &fault.Error{Kind: fault.Exhausted, Err: fmt.Errorf("the disk of %s: %w", s.dir, unix.ENOSPC),
			Remedy: "free some space on that disk, or name another one in TMPDIR"}
	}
	return nil
}

// leastRoom is how many bytes a disk has that is not full: a program's output and the worker's own
// records have room.
const leastRoom = 1 << 20

// diskFull reports whether the disk of a folder has no room for more files.
func diskFull(dir string) (bool, error) {
	var stat unix.Statfs_t
	if err := unix.Statfs(dir, &stat); err != nil {
		return false, err
	}
	return stat.Bavail*uint64(stat.Bsize) < leastRoom || stat.Files > 0 && stat.Ffree == 0, nil
}

// Scratch makes a folder of this machine for this user alone, such as for what goes into a
// command and comes out of it. The caller removes it with release. If its process is killed
// before, the next Open removes it.
func (s *Sandbox) Scratch() (dir string, release func() error, err error) {
	own, err := acquireSlot(s.dir, hierarchies{})
	if err != nil {
		return "", nil, err
	}
	dir = filepath.Join(own.dir, "files")
	if err := os.Mkdir(dir, 0o700); err != nil {
		return "", nil, errors.Join(fault.WithKind(fault.Unavailable, err, "make a folder"), own.release())
	}
	return dir, own.release, nil
}
