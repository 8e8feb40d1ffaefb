package isolation

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"time"

	"rollout/shared/fault"
)

// interval is how often the use of a command is looked at.
const interval = 50 * time.Millisecond

// setupTime bounds how long a sandbox may take until its program starts, on a busy machine.
const setupTime = 2 * time.Minute

// execution is one command while it runs.
type execution struct {
	command Command
	level   Level
	probe   bool
	slot    slot
	group   cgroup
	outcome Outcome

	landlock int      // the version of it to use; 0 is none
	covers   []string // paths in the sandbox that are hidden

	ctl, gate   channel
	process     *os.Process
	diagnostics *meteredOutput // of init
	said        Output
	output      *meteredOutput
	scratch     *os.Root // has the folders work, out and tmp
	scratchFile *os.File // the same at the level Full, for its use of the disk
	listeners   []net.Listener
	started     time.Time
	sampled     usage // where no cgroup tells it
	noRoom      bool  // the machine's disk was full while the command wrote to it, at the level Trusted
	messages    chan message
	stop        context.CancelFunc
	background  sync.WaitGroup
}

// setupError says why a program did not start, for the outcome.
type setupError struct{ error }

// asSetup turns what the launcher said into a setupError.
func asSetup(err error) error {
	var said failedError
	if errors.As(err, &said) {
		return setupError{said}
	}
	return err
}

func (s *Sandbox) run(ctx context.Context, c Command, level Level, probe bool) (_ Outcome, err error) {
	covers, err := s.covers(level, c)
	if err != nil {
		return Outcome{}, err
	}
	slot, err := acquireSlot(s.dir, s.groups)
	if err != nil {
		return Outcome{}, err
	}
	// The kernel kills init when the thread that started it ends. This goroutine holds the
	// thread until init has ended.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	e := &execution{command: c, level: level, probe: probe, slot: slot, group: cgroup{s.groups.inside(slot.name())},
		output: newMeteredOutput(c.Limits.Keep, c.Limits.Output), diagnostics: newMeteredOutput(maxText, maxText),
		messages: make(chan message), landlock: s.landlock, covers: covers}
	e.outcome.Level, e.outcome.Enforced = level, e.enforced()
	background, stop := context.WithCancel(context.WithoutCancel(ctx))
	e.stop = stop
	defer func() { err = errors.Join(err, slot.release()) }()

	err = e.start(ctx, background)
	var last message
	if err == nil {
		last = e.watch(ctx)
	}
	if endErr := e.end(last); err == nil {
		err = endErr
	}
	return e.judge(ctx, last, err)
}

// errSetupTime is the error of a program that takes too long to start.
var errSetupTime = fault.New(fault.Unavailable, "no program started within %s", setupTime)

// start sets everything up until the program runs.
func (e *execution) start(ctx, background context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, setupTime, errSetupTime)
	defer cancel()
	if err := e.group.make(e.command.Limits); err != nil {
		return err
	}
	if err := e.makeFolders(); err != nil {
		return err
	}
	if err := e.startInit(); err != nil {
		return fault.WithKind(fault.Unavailable, err, "start the first process of a sandbox")
	}
	files, _, err := e.ctl.expect(ctx, kindMounted)
	if err != nil {
		return err
	}
	if err := e.takeFiles(files); err != nil {
		return err
	}
	if err := e.fillWork(); err != nil {
		return err
	}
	for i, l := range e.listeners {
		e.background.Go(func() { e.command.Forwards[i].answer(background, l) })
	}
	return e.startProgram(ctx, background)
}

// startProgram lets init start the launcher, and the launcher become the program.
func (e *execution) startProgram(ctx, background context.Context) error {
	settings, err := settingsFile(e.launcher())
	if err != nil {
		return fault.WithKind(fault.Unavailable, err, "write the settings of a sandbox")
	}
	err = e.ctl.send(message{Kind: kindSpawn}, settings)
	settings.Close()
	if err != nil {
		return fault.WithKind(fault.Unavailable, err, "reach the first process of a sandbox")
	}
	if _, _, err := e.ctl.expect(ctx, kindSpawned); err != nil {
		return err
	}
	e.background.Go(func() { e.listen(background) })
	_, pid, err := e.gate.expect(ctx, kindReady)
	if err != nil {
		return asSetup(err)
	}
	if err := e.group.add(pid); err != nil {
		return err
	}
	if err := e.gate.send(message{Kind: kindGo}); err != nil {
		return fault.WithKind(fault.Unavailable, err, "reach the launcher of a sandbox")
	}
	// From here on the program may run. If the context ends now, watch leaves it its grace.
	ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), setupTime, errSetupTime)
	defer cancel()
	if _, _, err := e.gate.expect(ctx, kindExec); err != nil {
		return asSetup(err)
	}
	e.started = time.Now()
	if err := e.gate.expectEnd(ctx); err != nil {
		return asSetup(err)
	}
	return e.group.limitProcesses(e.command.Limits.Processes)
}

// makeFolders makes the scratch folders on the disk, which the level Trusted needs.
func (e *execution) makeFolders() error {
	if e.level == Full {
		return nil
	}
	dir := e.scratchPath()
	err := os.Mkdir(dir, 0o711)
	for _, name := range []string{"work", "out", "tmp"} {
		path := filepath.Join(dir, name)
		err = errors.Join(err, os.Mkdir(path, 0o700), os.Lchown(path, e.owner(), e.owner()))
	}
	if err == nil {
		e.scratch, err = os.OpenRoot(dir)
	}
	return fault.WithKind(fault.Unavailable, err, "make the folders of a sandbox")
}

func (e *execution) scratchPath() string { return filepath.Join(e.slot.dir, "scratch") }

// owner is the user and group of the command on this machine.
func (e *execution) owner() int {
	if os.Geteuid() == 0 {
		return e.slot.user()
	}
	return -1 // this process's own, for Lchown
}

// paths returns where the command sees its folders.
func (e *execution) paths() (work, out, temp string) {
	if e.level == Full {
		return "/work", "/out", "/tmp"
	}
	dir := e.scratchPath()
	return filepath.Join(dir, "work"), filepath.Join(dir, "out"), filepath.Join(dir, "tmp")
}
