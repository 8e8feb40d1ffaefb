package isolation

import (
	"context"
	"errors"
	"net"
	"path"
	"path/filepath"
	"strings"
	"time"

	"rollout/shared/fault"
)

// Level says how strictly a command is kept apart from the machine.
type Level uint8

// The levels, the weakest first.
const (
	Refused Level = iota // nothing may run
	Trusted              // own user if possible, Landlock, seccomp, rlimits, a cgroup to kill it by
	Full                 // all of that inside namespaces of its own, with files in memory
)

// String returns the level's name in records: "refused", "trusted", "full".
func (l Level) String() string { return [...]string{"refused", "trusted", "full"}[l] }

// Command is one command to run. All paths are absolute.
type Command struct {
	// Args are the program and its arguments; no shell sees them. A program without a slash is
	// looked for in the sandbox's PATH, one with a relative path below the work folder.
	Args []string
	// Env is all that the command's environment has besides the variables that Environment
	// documents. It replaces those of the same name.
	Env map[string]string
	// Staged are folders of this machine whose files the work folder starts with. They are
	// copied; links are copied as links. Two of them may not have the same file.
	Staged []string
	// Folders are shown to the command, read-only.
	Folders []Folder
	// Out is an existing folder of this machine that gets the files of the command's out folder
	// when it has ended; "" drops them. Work gets those of its work folder. Never follow links
	// in Work: the command chose their targets. Out has none.
	Out, Work string
	// Forwards are the only network that the command has.
	Forwards []Forward
	Limits   Limits
	// Trusted says that the command's author is trusted: it may run at the level Trusted.
	Trusted bool
}

// Folder is a folder of this machine that a command may read.
type Folder struct {
	Host     string // its path on this machine
	Inside   string // its path in the sandbox; the level Trusted leaves it at Host
	Variable string // the environment variable that gets its path; may be ""
}

// Forward is a TCP port on the command's loopback address, or a Unix socket of the command's, that
// leads to this process, or to a Unix socket of this machine.
type Forward struct {
	// Serve answers the connections of the listener until ctx ends. Nil passes them on to Socket.
	Serve  func(ctx context.Context, l net.Listener) error
	Socket string // path of a Unix socket; "" with Serve
	Port   int    // 0 takes any; the level Trusted always takes any
	// Path is that of the command's Unix socket, below /tmp, in place of a port. The command alone may
	// use it. It needs the level Full.
	Path string
	// Env returns variables for the command's environment, given the forward's address, such as
	// "127.0.0.1:8000", or its Path. May be nil.
	Env func(address string) map[string]string
}

// Limits bound one command. All but Grace must be positive.
type Limits struct {
	Wall      time.Duration // from the start of the program
	CPU       time.Duration // of all processes together
	Memory    int64         // bytes of all processes together, 64 MiB at least; with a cgroup also of files they write
	Processes int           // processes and threads at once
	Output    int64         // bytes of standard output and standard error together
	Keep      int           // bytes to keep of the beginning of each of the two; the rest is counted
	Disk      int64         // bytes of files, with the staged ones
	Files     int64         // files, folders and links, with the staged ones
	OutFiles  int           // files and folders collected of each folder; the rest is left out
	OutBytes  int64         // their bytes
	// Grace is the time between SIGTERM and SIGKILL when the time limit is reached or the
	// context ends. All other limits kill at once.
	Grace time.Duration
}

// Environment returns the variables that every command has: PATH, HOME, TMPDIR, LANG, TZ, USER,
// and ROLLOUT_WORK and ROLLOUT_OUT with the paths of its folders.
func Environment(work, out, temp string) map[string]string {
	return map[string]string{
		"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
		"HOME": temp, "TMPDIR": temp, "LANG": "C.UTF-8", "TZ": "UTC", "USER": "sandbox",
		"ROLLOUT_WORK": work, "ROLLOUT_OUT": out,
	}
}

// check returns everything that is wrong with the command.
func (c Command) check() error {
	var problems []error
	problem := func(ok bool, format string, args ...any) {
		if !ok {
			problems = append(problems, fault.New(fault.Invalid, format, args...))
		}
	}
	problem(len(c.Args) > 0 && c.Args[0] != "", "the command has no program")
	for _, arg := range c.Args {
		problem(!strings.Contains(arg, "\x00"), "the argument %q has a zero byte", arg)
	}
	for name, value := range c.Env {
		problem(name != "" && !strings.ContainsAny(name, "=\x00") && !strings.Contains(value, "\x00"),
			"the environment variable %q is malformed", name)
	}
	for _, host := range append([]string{c.Out, c.Work}, c.Staged...) {
		problem(host == "" || filepath.IsAbs(host), "the folder %q is not an absolute path", host)
	}
	for _, f := range c.Folders {
		problem(filepath.IsAbs(f.Host), "the folder %q is not an absolute path", f.Host)
		problem(freePath(f.Inside), "a folder cannot be shown at %q: choose a path that the sandbox does not use", f.Inside)
	}
	for _, f := range c.Forwards {
		problem(f.Serve != nil || filepath.IsAbs(f.Socket), "the socket %q is not an absolute path", f.Socket)
		problem(f.Path == "" || f.Port == 0 && path.Dir(f.Path) == "/tmp" && path.Clean(f.Path) == f.Path && !c.Trusted,
			"a socket cannot be at %q with the port %d: name a file in /tmp, without a port, for a command that is not trusted",
			f.Path, f.Port)
		problem(f.Port >= 0 && f.Port < 1<<16, "port %d does not exist", f.Port)
	}
	l := c.Limits
	problem(l.Wall > 0 && l.CPU > 0 && l.Memory > 0 && l.Processes > 0 && l.Output > 0 && l.Keep > 0 && l.Disk > 0 &&
		l.Files > 0 && l.OutFiles > 0 && l.OutBytes > 0 && l.Grace >= 0, "a limit is missing or negative")
	problem(l.Memory >= leastMemory, "the limit of memory is %d bytes: give %d at least", l.Memory, leastMemory)
	return errors.Join(problems...)
}

// leastMemory is what a sandbox itself needs to start a program.
const leastMemory = 64 << 20

// freePath says whether a folder of the caller may be shown at the path: a clean absolute path
// that neither has nor is part of a folder of the sandbox.
func freePath(p string) bool {
	if !path.IsAbs(p) || path.Clean(p) != p || p == "/" {
		return false
	}
	first, _, _ := strings.Cut(p[1:], "/")
	for _, taken := range append([]string{"dev", "etc", "out", "proc", "tmp", "work"}, systemFolders...) {
		if first == taken {
			return false
		}
	}
	return true
}

// systemFolders are the folders at the root of the file system that every command may read: the
// programs and libraries of the machine.
var systemFolders = []string{"usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32"}
