package isolation

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// runLauncher takes the last rights from its own process, and then becomes the command's
// program. It returns its exit code if that fails.
func runLauncher() int {
	// Landlock's and seccomp's filters, and the limits, stay with the thread that executes.
	runtime.LockOSThread()
	unix.CloseRange(launcherChannel, ^uint(0), unix.CLOSE_RANGE_CLOEXEC)
	gate := launcherGate{fd: launcherChannel}
	var s launcherSettings
	err := readSettings(os.NewFile(launcherInput, "settings"), &s)
	if err == nil {
		err = launch(gate, s)
	}
	if err != nil {
		gate.send(kindFailed, err.Error())
		return 1
	}
	return 0
}

func launch(gate launcherGate, s launcherSettings) error {
	unix.Umask(0o022)
	if err := os.Chdir(s.Work); err != nil {
		return fmt.Errorf("enter the work folder: %w", err)
	}
	program, err := findProgram(s)
	if err != nil {
		return err
	}
	if err := restrictSelf(s); err != nil {
		return err
	}
	gate.send(kindReady, "")
	if err := gate.await(kindGo); err != nil {
		return err
	}
	env := environ(s.Env)
	gate.send(kindExec, "")
	if s.Probe {
		os.Exit(0)
	}
	// Last, because this program itself may need a thread and memory until here.
	for resource, value := range map[int]int64{unix.RLIMIT_NPROC: int64(s.Processes), unix.RLIMIT_DATA: s.Data} {
		if value == 0 {
			continue
		}
		if err := limit(resource, uint64(value)); err != nil {
			return err
		}
	}
	err = untilReleased(func() error { return syscall.Exec(program, s.Args, env) })
	return fmt.Errorf("execute %s: %w", program, err)
}

// How often, and with which pause, a program is executed that is open for writing. A process that
// the worker forks while it copies the program holds the copy open until it executes its own.
const (
	busyTries = 200
	busyPause = 10 * time.Millisecond
)

// untilReleased repeats the execution of a program as long as the program is open for writing.
func untilReleased(execute func() error) error {
	for try := 1; ; try++ {
		err := execute()
		if !errors.Is(err, syscall.ETXTBSY) || try == busyTries {
			return err
		}
		time.Sleep(busyPause)
	}
}

// findProgram returns the path of the program, as execvp finds it.
func findProgram(s launcherSettings) (string, error) {
	name := s.Args[0]
	if strings.Contains(name, "/") || s.Probe {
		return name, nil
	}
	for _, dir := range filepath.SplitList(s.Env["PATH"]) {
		at := filepath.Join(dir, name)
		if !filepath.IsAbs(at) {
			continue
		}
		if info, err := os.Stat(at); err == nil && info.Mode().IsRegular() && unix.Access(at, unix.X_OK) == nil {
			return at, nil
		}
	}
	return "", fmt.Errorf("%q: %w", name, exec.ErrNotFound)
}

func environ(env map[string]string) []string {
	list := make([]string, 0, len(env))
	for name, value := range env {
		list = append(list, name+"="+value)
	}
	return list
}

// restrictSelf takes the rights away, in an order in which each step is still permitted.
func restrictSelf(s launcherSettings) error {
	const (
		core     = 0
		files    = 1024     // open at once
		locked   = 64 << 10 // bytes in memory for good
		messages = 64 << 10 // bytes in message queues
		priority = 0
	)
	cpu := uint64(s.CPU/time.Second) + 1
	limits := []struct {
		resource int
		value    uint64
	}{
		{unix.RLIMIT_CORE, core}, {unix.RLIMIT_NOFILE, files}, {unix.RLIMIT_MEMLOCK, locked},
		{unix.RLIMIT_MSGQUEUE, messages}, {unix.RLIMIT_RTPRIO, priority}, {unix.RLIMIT_NICE, priority},
		{unix.RLIMIT_FSIZE, uint64(s.Disk)}, {unix.RLIMIT_CPU, cpu},
	}
	for _, l := range limits {
		if err := limit(l.resource, l.value); err != nil {
			return err
		}
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("renounce new privileges: %w", err)
	}
	if err := restrictPaths(s); err != nil {
		return fmt.Errorf("restrict files with Landlock: %w", err)
	}
	if err := filterCalls(s.Level, s.Data == 0); err != nil {
		return fmt.Errorf("filter system calls with seccomp: %w", err)
	}
	return nil
}

// limit lowers a resource limit; a lower one of the machine stays.
func limit(resource int, value uint64) error {
	var now syscall.Rlimit
	if err := syscall.Getrlimit(resource, &now); err != nil {
		return fmt.Errorf("read resource limit %d: %w", resource, err)
	}
	lower := min(value, now.Max)
	if err := syscall.Setrlimit(resource, &syscall.Rlimit{Cur: lower, Max: lower}); err != nil {
		return fmt.Errorf("set resource limit %d: %w", resource, err)
	}
	return nil
}

// launcherGate is the launcher's end of its channel to the worker. It makes plain system calls:
// what is between the last of them and the program must not need a thread.
type launcherGate struct{ fd int }

func (g launcherGate) send(kind, text string) {
	_ = unix.Sendto(g.fd, encode(message{Kind: kind, Text: text}), unix.MSG_NOSIGNAL, nil)
}

func (g launcherGate) await(kind string) error {
	buf := make([]byte, maxText)
	for {
		n, err := unix.Read(g.fd, buf)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return fmt.Errorf("wait for the worker: %w", err)
		case n == 0:
			return errors.New("the worker has ended")
		}
		if m, err := decode(buf[:n]); err != nil || m.Kind != kind {
			return fmt.Errorf("the worker said %q instead of %q", m.Kind, kind)
		}
		return nil
	}
}
