package isolation

import (
	"encoding/json"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// The arguments by which the worker's program becomes a helper process of a sandbox. Nobody
// types them.
const (
	initArgument     = "isolation-init"
	launcherArgument = "isolation-launcher"
)

// The descriptors of the helper processes.
const (
	initChannel = 3 // to the worker
	initGate    = 4 // the launcher's channel to the worker
	initStdout  = 5 // of the command
	initStderr  = 6
	initKill    = 7 // cgroup.kill, at the level Trusted

	launcherChannel = 3
	launcherInput   = 4 // its settings
)

// initSettings is what the worker tells init.
type initSettings struct {
	Level    Level
	Root     string   // an empty folder, where the sandbox's root is mounted
	Folders  []Folder // shown read-only
	Covers   []string // paths in the root that are hidden
	Ports    []int    // to listen on
	Sockets  []string // by port: the path of a Unix socket in place of it, or ""
	Disk     int64    // bytes of the scratch file system
	Files    int64    // its files
	Owner    int      // the user and group of the scratch folders, as init sees them
	Watch    bool     // samples are sent
	Interval time.Duration
}

// launcherSettings is what the worker tells the launcher, through init.
type launcherSettings struct {
	Level     Level
	Probe     bool // end with 0 instead of running a program
	Args      []string
	Env       map[string]string
	Work      string   // where the program starts
	ReadOnly  []string // what Landlock lets it read
	Writable  []string // and change
	Devices   []string // and write to
	Ports     []int    // and connect to, at the level Trusted
	Landlock  int      // the version to enforce; 0 is none
	CPU       time.Duration
	Disk      int64
	Data      int64 // bytes of memory of one process; 0 is unlimited
	Processes int   // 0 is unlimited
}

// Main runs a helper process of a sandbox if the arguments of the program request it, and
// reports whether it did. A program that uses a Sandbox must call it first.
func Main(args []string) bool {
	if len(args) != 2 {
		return false
	}
	switch args[1] {
	case initArgument:
		os.Exit(runInit())
	case launcherArgument:
		os.Exit(runLauncher())
	}
	return false
}

// settingsFile returns a file in memory with the settings, for a helper process to read.
func settingsFile(settings any) (*os.File, error) {
	text, err := json.Marshal(settings)
	if err != nil {
		return nil, err
	}
	fd, err := unix.MemfdCreate("settings", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, err
	}
	file := os.NewFile(uintptr(fd), "settings")
	if _, err = file.Write(text); err == nil {
		_, err = file.Seek(0, io.SeekStart)
	}
	if err != nil {
		file.Close()
		return nil, err
	}
	return file, nil
}

func readSettings(r io.ReadCloser, to any) error {
	defer r.Close()
	return json.NewDecoder(r).Decode(to)
}
