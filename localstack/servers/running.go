package servers

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"rollout/localstack/subprocess"
)

// Options say how a server is started.
type Options struct {
	Root  string // the repository's root
	Model string // what Server.Export wrote
	Log   string // file that gets the server's output
	Slots int    // requests that it computes at once
	// Embeddings makes it serve embeddings instead of answers.
	Embeddings bool

	Port int // set by Run
}

// Running is a server that is started again whenever it ends, until Close. Its
// methods may be called from several goroutines.
type Running struct {
	URL string // base URL of its API, as --engine takes it

	server  Server
	options Options
	log     *os.File
	closing chan struct{}
	closed  chan struct{} // closed when the last process has ended

	mu     sync.Mutex
	pid    int // of the process that runs now, the leader of its group
	starts int
	failed error // the server could not be started
}

// Run starts the server on a free port of this machine.
func (s Server) Run(o Options) (*Running, error) {
	if err := s.Check(o.Root); err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	o.Port = l.Addr().(*net.TCPAddr).Port
	if err := l.Close(); err != nil {
		return nil, err
	}
	log, err := os.Create(o.Log)
	if err != nil {
		return nil, err
	}
	r := &Running{URL: fmt.Sprintf("http://127.0.0.1:%d/v1", o.Port), server: s, options: o, log: log,
		closing: make(chan struct{}), closed: make(chan struct{})}
	cmd, err := r.start()
	if err != nil {
		return nil, errors.Join(err, log.Close())
	}
	go r.supervise(cmd)
	return r, nil
}

// supervise starts the server again whenever it ends.
func (r *Running) supervise(cmd *exec.Cmd) {
	defer close(r.closed)
	for {
		_ = cmd.Wait() // it may end as it likes
		// What it started may hold its port or memory.
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		var err error
		if cmd, err = r.start(); err != nil {
			r.mu.Lock()
			r.failed = err
			r.mu.Unlock()
		}
		if cmd == nil {
			return
		}
	}
}

// start starts a process, unless the server is being closed.
func (r *Running) start() (*exec.Cmd, error) {
	program, err := filepath.Abs(filepath.Join(r.options.Root, r.server.program))
	if err != nil {
		return nil, err
	}
	cmd := r.server.command(program, r.options)
	cmd.Stdout, cmd.Stderr = r.log, r.log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	r.mu.Lock() // Close sees either no process or the new one
	defer r.mu.Unlock()
	select {
	case <-r.closing:
		return nil, nil
	default:
	}
	if err := subprocess.Start(cmd); err != nil {
		return nil, err
	}
	r.pid = cmd.Process.Pid
	r.starts++
	return cmd, nil
}

// Close ends the server with all its processes.
func (r *Running) Close() error {
	r.mu.Lock()
	close(r.closing)
	pid := r.pid
	r.mu.Unlock()
	_ = syscall.Kill(-pid, syscall.SIGKILL) // it may have ended
	<-r.closed
	return r.log.Close()
}

// Starts is how often the server was started.
func (r *Running) Starts() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.starts
}

// readyPoll is the time between two questions whether a server is ready.
const readyPoll = 100 * time.Millisecond

// AwaitReady waits until the server lists its models.
func (r *Running) AwaitReady(ctx context.Context) error {
	tick := time.NewTicker(readyPoll)
	defer tick.Stop()
	for {
		if r.ready(ctx) {
			return nil
		}
		r.mu.Lock()
		err := r.failed
		r.mu.Unlock()
		if err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("%s does not answer: %w: its output is in %s", r.server.Name, ctx.Err(), r.options.Log)
		}
	}
}

func (r *Running) ready(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	q, err := http.NewRequestWithContext(ctx, http.MethodGet, r.URL+"/models", nil)
	if err != nil {
		return false
	}
	resp, err := http.DefaultClient.Do(q)
	if err != nil {
		return false
	}
	defer resp.Body.Close()
	return resp.StatusCode == http.StatusOK
}

// Signal sends a signal to the process that answers.
func (r *Running) Signal(s syscall.Signal) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return syscall.Kill(r.pid, s)
}

// SignalAll sends a signal to all processes of the server.
func (r *Running) SignalAll(s syscall.Signal) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return syscall.Kill(-r.pid, s)
}

// SignalEngine sends a signal to the process that computes.
func (r *Running) SignalEngine(s syscall.Signal) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		return err
	}
	for _, f := range files {
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(f)))
		if err != nil {
			return err
		}
		if group, err := syscall.Getpgid(pid); err != nil || group != r.pid {
			continue // it has ended, or is of another server
		}
		if line, err := os.ReadFile(f); err == nil && r.server.engine(strings.ReplaceAll(string(line), "\x00", " ")) {
			return syscall.Kill(pid, s)
		}
	}
	return fmt.Errorf("%s has no process that computes", r.server.Name)
}
