package isolation

import (
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// runInit is the first process of a sandbox: process 1 of its namespaces at the level Full, and
// the parent of all its processes at the level Trusted. It is of the worker's program, and runs
// nothing of the command's. It ends when the program ends or the worker does, and at the level
// Full the kernel then kills all that is left. It returns its exit code.
func runInit() int {
	unix.CloseRange(3, ^uint(0), unix.CLOSE_RANGE_CLOEXEC)
	ctl, err := openChannel(initChannel)
	if err != nil {
		fmt.Fprintf(os.Stderr, "open the channel to the worker: %v\n", err)
		return 1
	}
	var s initSettings
	if err = readSettings(os.Stdin, &s); err == nil {
		err = serveInit(ctl, s)
	}
	if err != nil {
		_ = ctl.send(message{Kind: kindFailed, Text: err.Error()})
		return 1
	}
	return 0
}

func serveInit(ctl channel, s initSettings) error {
	processes, err := prepare(ctl, s)
	if err != nil {
		return err
	}
	if s.Level == Full {
		if err := ignoreSignals(); err != nil {
			return err
		}
	}
	m, files, _, err := ctl.receive()
	if err != nil || m.Kind != kindSpawn || len(files) != 1 {
		return fmt.Errorf("wait for the worker, which said %q: %w", m.Kind, err)
	}
	pid, err := spawn(s, files[0])
	if err != nil {
		return fmt.Errorf("start the launcher: %w", err)
	}
	if s.Level == Full {
		if err := seal(); err != nil {
			return err
		}
	}
	if err := ctl.send(message{Kind: kindSpawned}); err != nil {
		return err
	}
	go obey(ctl, s.Level, pid)
	sampler := &sampler{processes: processes, alive: map[processKey]time.Duration{}}
	if s.Watch {
		go sampler.watch(ctl, s.Interval)
	}
	code, signal := wait(pid)
	killGroup(s.Level)
	last := message{Kind: kindExited}
	if s.Watch {
		last = sampler.sample(kindExited)
		last.Memory = max(last.Memory, largestChild()) // it may have ended between two samples
	}
	last.Code, last.Signal = code, signal
	return ctl.send(last)
}

// ignoreSignals takes away the handlers of Go's runtime, some of which end the process. The
// kernel then drops what the command sends: process 1 of a namespace gets only signals with a
// handler. Without it a command of the same user, as an ordinary user's is, could end init, and
// its trial would count as one that this machine has failed.
func ignoreSignals() error {
	const signals, maskBytes = 64, 8
	var standard [64]byte // struct sigaction: the default, no flags, no mask
	for signal := uintptr(1); signal <= signals; signal++ {
		if signal == uintptr(unix.SIGKILL) || signal == uintptr(unix.SIGSTOP) {
			continue // they have no handlers
		}
		_, _, errno := unix.RawSyscall6(unix.SYS_RT_SIGACTION, signal, uintptr(unsafe.Pointer(&standard)), 0, maskBytes, 0, 0)
		if errno != 0 {
			return fmt.Errorf("take the handler of signal %d away: %w", signal, errno)
		}
	}
	return nil
}

// prepare makes the file system and the network, and hands the worker the scratch folder and
// the listeners. It returns the /proc of samples, if there are any.
func prepare(ctl channel, s initSettings) (processes *os.File, err error) {
	if s.Level != Full {
		if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
			return nil, fmt.Errorf("become the parent of orphans: %w", err)
		}
		return nil, ctl.send(message{Kind: kindMounted})
	}
	if err := unix.Setgroups(nil); err != nil && !errors.Is(err, unix.EPERM) { // an ordinary user may not
		return nil, fmt.Errorf("leave all groups: %w", err)
	}
	scratch, processes, err := mountRoot(s)
	if err != nil {
		return nil, err
	}
	listeners, err := listenInside(s)
	if err != nil {
		return nil, err
	}
	return processes, ctl.send(message{Kind: kindMounted}, append([]*os.File{scratch}, listeners...)...)
}

// listenInside starts the loopback interface, and listens on its ports and at the sockets.
func listenInside(s initSettings) (files []*os.File, err error) {
	if err := unix.Sethostname([]byte("sandbox")); err != nil {
		return nil, fmt.Errorf("set the host's name: %w", err)
	}
	if err := raiseLoopback(); err != nil {
		return nil, fmt.Errorf("start the loopback interface: %w", err)
	}
	for i, port := range s.Ports {
		var l interface {
			File() (*os.File, error)
			Close() error
		}
		var err error
		if at := s.Sockets[i]; at != "" {
			l, err = listenAt(at, s.Owner)
		} else {
			l, err = net.ListenTCP("tcp4", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: port})
		}
		if err != nil {
			return nil, fmt.Errorf("listen on port %d or at %q: %w", port, s.Sockets[i], err)
		}
		file, err := l.File()
		if err != nil {
			return nil, err
		}
		l.Close() // the file is a copy
		files = append(files, file)
	}
	return files, nil
}

// listenAt listens at a Unix socket that the owner alone may use.
func listenAt(path string, owner int) (*net.UnixListener, error) {
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, err
	}
	l.SetUnlinkOnClose(false) // a copy stays open
	return l, errors.Join(os.Chmod(path, 0o600), os.Lchown(path, owner, owner))
}

func raiseLoopback() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	lo, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	lo.SetUint16(unix.IFF_UP)
	return unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, lo)
}

// insideUser is the command's user and group as it sees itself.
const insideUser = 1000

// spawn starts the launcher. At the level Full it gets one more user namespace, so that it has
// no rights to what init has made, and so that its processes are counted apart from init's.
func spawn(s initSettings, settings *os.File) (pid int, err error) {
	defer settings.Close()
	null, err := os.Open(os.DevNull)
	if err != nil {
		return 0, err
	}
	defer null.Close()
	gate := os.NewFile(initGate, "gate")
	stdout, stderr := os.NewFile(initStdout, "stdout"), os.NewFile(initStderr, "stderr")
	attributes := os.ProcAttr{Dir: "/", Env: []string{"GOMAXPROCS=1", "GOGC=off"}, Sys: &syscall.SysProcAttr{Setsid: true},
		Files: []*os.File{null, stdout, stderr, gate, settings}}
	switch {
	case s.Level == Full:
		ids := []syscall.SysProcIDMap{{ContainerID: insideUser, HostID: s.Owner, Size: 1}}
		attributes.Sys.Cloneflags = unix.CLONE_NEWUSER
		attributes.Sys.UidMappings, attributes.Sys.GidMappings = ids, ids
		attributes.Sys.Credential = &syscall.Credential{Uid: insideUser, Gid: insideUser, NoSetGroups: true}
	case s.Owner != os.Geteuid():
		attributes.Sys.Credential = &syscall.Credential{Uid: uint32(s.Owner), Gid: uint32(s.Owner)}
	}
	p, err := os.StartProcess("/proc/self/exe", []string{"sandbox", launcherArgument}, &attributes)
	for _, file := range []*os.File{gate, stdout, stderr} {
		file.Close() // the launcher has them
	}
	if err != nil {
		return 0, err
	}
	return p.Pid, nil
}

// obey does what the worker says, and ends the sandbox when the worker has ended.
func obey(ctl channel, level Level, pid int) {
	for {
		m, _, _, err := ctl.receive()
		if err != nil {
			killGroup(level)
			os.Exit(1)
		}
		if m.Kind != kindTerm {
			continue
		}
		if level == Full {
			_ = unix.Kill(-1, unix.SIGTERM) // all but init itself
		} else {
			_ = unix.Kill(-pid, unix.SIGTERM)
		}
	}
}

// killGroup kills all processes of the command at the level Trusted. At the level Full the end
// of init does.
func killGroup(level Level) {
	if level == Trusted {
		_, _ = unix.Write(initKill, []byte("1"))
	}
}

// wait reaps processes until that of the pid ends. It returns its exit code, or its signal.
func wait(pid int) (code int, signal string) {
	for {
		var status unix.WaitStatus
		ended, err := unix.Wait4(-1, &status, 0, nil)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return 0, "lost: " + err.Error()
		case ended == pid && status.Exited():
			return status.ExitStatus(), ""
		case ended == pid && status.Signaled():
			return 0, unix.SignalName(status.Signal())
		}
	}
}
