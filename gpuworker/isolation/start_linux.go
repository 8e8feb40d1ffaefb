package isolation

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"

	"rollout/shared/fault"
)

// startInit starts the first process, and tells it its settings.
func (e *execution) startInit() (err error) {
	if err := e.listenOutside(); err != nil {
		return err
	}
	var files childFiles
	defer files.close()
	files.add(settingsFile(e.settings()))
	diagnostics := files.pipe(e.diagnostics, &e.said)
	files.files = append(files.files, diagnostics, diagnostics)
	e.ctl = files.channel()
	e.gate = files.channel()
	files.files = append(files.files, files.pipe(e.output, &e.outcome.Stdout), files.pipe(e.output, &e.outcome.Stderr))
	if e.level == Trusted {
		files.add(os.OpenFile(filepath.Join(e.group.unified, "cgroup.kill"), os.O_WRONLY, 0))
	}
	if files.err != nil {
		return files.err
	}
	e.process, err = os.StartProcess("/proc/self/exe", []string{"sandbox", initArgument}, &os.ProcAttr{
		Dir: "/", Env: []string{"GOMAXPROCS=1"}, Files: files.files, Sys: e.attributes()})
	return err
}

// childFiles collects the files of a child process, in their order, and the first error.
type childFiles struct {
	files []*os.File
	err   error
}

func (c *childFiles) add(file *os.File, err error) {
	c.err = errors.Join(c.err, err)
	c.files = append(c.files, file)
}

// pipe returns the writing end of a pipe whose other end is read into the output. It is not
// added.
func (c *childFiles) pipe(m *meteredOutput, o *Output) *os.File {
	r, w, err := os.Pipe()
	if err != nil {
		c.err = errors.Join(c.err, err)
		return nil
	}
	m.read(r, o)
	return w
}

// channel adds the other end of a channel, and returns this process's.
func (c *childFiles) channel() channel {
	own, other, err := newChannels()
	c.add(other, err)
	return own
}

// close closes this process's copies.
func (c *childFiles) close() {
	for _, file := range c.files {
		file.Close() // of a file that appears twice, and of nil, it is an error without effect
	}
}

// attributes are those of the first process.
func (e *execution) attributes() *syscall.SysProcAttr {
	a := &syscall.SysProcAttr{Setsid: true}
	if e.level != Full {
		return a // it outlives the worker for as long as it takes to kill the command
	}
	a.Pdeathsig = syscall.SIGKILL
	a.Cloneflags = unix.CLONE_NEWUSER | unix.CLONE_NEWPID | unix.CLONE_NEWNET | unix.CLONE_NEWNS | unix.CLONE_NEWIPC |
		unix.CLONE_NEWUTS | unix.CLONE_NEWCGROUP
	// Root of the sandbox is the worker's user, so that it can show the folders that it may see.
	// The command has another user if the worker may give it one.
	a.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Geteuid(), Size: 1}}
	a.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getegid(), Size: 1}}
	if os.Geteuid() == 0 {
		own := syscall.SysProcIDMap{ContainerID: 1, HostID: e.owner(), Size: 1}
		a.UidMappings, a.GidMappings = append(a.UidMappings, own), append(a.GidMappings, own)
		a.GidMappingsEnableSetgroups = true
	}
	return a
}

// listenOutside makes the forwards of the level Trusted, which has the network of the machine.
func (e *execution) listenOutside() error {
	if e.level == Full {
		return nil
	}
	for range e.command.Forwards {
		l, err := net.ListenTCP("tcp4", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
		if err != nil {
			return err
		}
		e.listeners = append(e.listeners, l)
	}
	return nil
}

// settings returns what init has to know.
func (e *execution) settings() initSettings {
	s := initSettings{Level: e.level, Root: filepath.Join(e.slot.dir, rootName), Folders: e.command.Folders,
		Covers: e.covers,
		Disk:   e.command.Limits.Disk, Files: e.command.Limits.Files, Watch: e.group.version == 0, Interval: interval}
	for _, f := range e.command.Forwards {
		s.Ports, s.Sockets = append(s.Ports, f.Port), append(s.Sockets, f.Path)
	}
	switch root := os.Geteuid() == 0; {
	case e.level == Full && root:
		s.Owner = 1
	case e.level == Full:
		s.Owner = 0 // the worker's user is the only one, and the sandbox's root
	case root:
		s.Owner = e.slot.user()
	default:
		s.Owner = os.Geteuid()
	}
	return s
}

// launcher returns what the launcher has to know.
func (e *execution) launcher() launcherSettings {
	work, out, temp := e.paths()
	l := e.command.Limits
	s := launcherSettings{Level: e.level, Probe: e.probe, Args: e.command.Args, Work: work, CPU: l.CPU, Disk: l.Disk,
		Env: Environment(work, out, temp)}
	for _, f := range e.command.Folders {
		path := f.Inside
		if e.level != Full {
			path = f.Host
			s.ReadOnly = append(s.ReadOnly, path)
		}
		if f.Variable != "" {
			s.Env[f.Variable] = path
		}
	}
	for i, f := range e.command.Forwards {
		if f.Env != nil {
			maps.Copy(s.Env, f.Env(e.listeners[i].Addr().String()))
		}
	}
	maps.Copy(s.Env, e.command.Env)
	if e.group.version == 0 { // without a cgroup: samples, and per process twice what all may have
		s.Data, s.Processes = 2*l.Memory, l.Processes+1
	}
	if version := e.landlock; e.level == Trusted || version >= landlockFull {
		s.Landlock = version
	}
	if e.level == Full {
		s.ReadOnly, s.Writable = []string{"/"}, []string{"/work", "/out", "/tmp", "/dev"}
		return s
	}
	for _, name := range systemFolders {
		s.ReadOnly = append(s.ReadOnly, filepath.Join("/", name))
	}
	for _, name := range etcFiles {
		s.ReadOnly = append(s.ReadOnly, filepath.Join("/etc", name))
	}
	for name := range etcTexts {
		s.ReadOnly = append(s.ReadOnly, filepath.Join("/etc", name))
	}
	for _, name := range devices {
		s.Devices = append(s.Devices, filepath.Join("/dev", name))
	}
	s.ReadOnly = append(s.ReadOnly, "/proc")
	s.Writable = []string{work, out, temp}
	for _, l := range e.listeners {
		s.Ports = append(s.Ports, l.Addr().(*net.TCPAddr).Port)
	}
	return s
}

// takeFiles takes what init has made: the scratch folder and the listeners.
func (e *execution) takeFiles(files []*os.File) (err error) {
	if e.level != Full {
		return nil
	}
	if len(files) != 1+len(e.command.Forwards) {
		closeAll(files)
		return fault.New(fault.Internal, "the sandbox made %d files for %d forwards", len(files), len(e.command.Forwards))
	}
	e.scratchFile = files[0]
	for _, file := range files[1:] {
		l, listenErr := net.FileListener(file) // a copy
		file.Close()
		if err = errors.Join(err, listenErr); listenErr == nil {
			e.listeners = append(e.listeners, l)
		}
	}
	if err == nil {
		e.scratch, err = os.OpenRoot(fmt.Sprintf("/proc/self/fd/%d", e.scratchFile.Fd()))
	}
	return fault.WithKind(fault.Unavailable, err, "open the folders of a sandbox")
}

// fillWork copies the staged folders into the work folder.
func (e *execution) fillWork() error {
	dst, err := e.scratch.OpenRoot("work")
	if err != nil {
		return fault.WithKind(fault.Unavailable, err, "open the work folder")
	}
	defer dst.Close()
	l := e.command.Limits
	c := copier{files: int(l.Files), bytes: l.Disk, links: true, hardLinks: true, strict: true}
	if os.Geteuid() == 0 {
		owner := e.owner()
		c.owner = &owner
	}
	for _, staged := range e.command.Staged {
		src, err := os.OpenRoot(staged)
		if err != nil {
			return setupError{fault.WithKind(fault.NotFound, err, "open a folder for the work folder")}
		}
		_, err = c.copy(dst, src)
		src.Close()
		if err != nil && e.level != Full && errors.Is(err, syscall.ENOSPC) {
			return fault.Wrap(err, "fill the work folder on the machine's disk") // it is no limit of the command's
		}
		if err != nil {
			return setupError{fault.Wrap(err, "fill the work folder")}
		}
	}
	return nil
}
