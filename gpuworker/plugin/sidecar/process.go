package sidecar

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"rollout/gpuworker/plugin/wire"
	"rollout/shared/fault"
)

// SocketVariable is the environment variable with the path of a plugin's socket.
const SocketVariable = "ROLLOUT_PLUGIN_SOCKET"

// Bounds of what a program writes to its standard output and error.
const (
	maxOutput  = 64 << 20 // bytes of both, of a program in a sandbox, which ends beyond it
	keptOutput = 4 << 10  // bytes of each that are logged
)

// process is one running program of a plugin.
type process struct {
	conn net.Conn
	// terminate sends SIGTERM, and SIGKILL to all that is left after the grace; forceful does so at
	// once where it can. Both may return before the program has ended.
	terminate, forceful func()
	ended               chan struct{} // closed when no process of the program is left
	why                 error         // how it ended; valid after that
	once                sync.Once
}

// launch starts the plugin's program, and waits until it has connected.
func launch(ctx context.Context, o Options) (*process, error) {
	ctx, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	conns := make(chan net.Conn, 1)
	start := startTrusted
	if o.Sandbox != nil {
		start = startSandboxed
	}
	p, err := start(ctx, o, conns)
	if err != nil {
		return nil, err
	}
	select {
	case p.conn = <-conns:
		return p, nil
	case <-p.ended:
		return nil, fault.New(fault.Invalid, "the program ended before it connected to %s: %w", SocketVariable, p.why)
	case <-ctx.Done():
		p.kill()
		return nil, fault.WithKind(fault.Unavailable, ctx.Err(), "the program did not connect to %s", SocketVariable)
	}
}

// accept passes on the first connection of a listener, and closes all others, until the listener
// is closed.
func accept(l net.Listener, conns chan<- net.Conn) {
	for {
		conn, err := l.Accept()
		if err != nil {
			if errors.Is(err, net.ErrClosed) {
				return
			}
			time.Sleep(10 * time.Millisecond) // the worker has no file left
			continue
		}
		select {
		case conns <- conn:
			conns = nil
		default:
			conn.Close()
		}
	}
}

func (p *process) hasEnded() bool {
	select {
	case <-p.ended:
		return true
	default:
		return false
	}
}

// ask makes a request of the worker's own.
func (p *process) ask(ctx context.Context, method string, payload []byte) ([]byte, error) {
	request, err := wire.AppendRequest(nil, method, payload)
	if err != nil {
		return nil, err
	}
	reply, err := p.exchange(ctx, request)
	if err != nil {
		return nil, err
	}
	text, err := wire.DecodeReply(reply)
	return text, fault.Wrap(err, "the request %s", method)
}

// exchange writes a request and reads its reply, until ctx ends. After an error the stream is
// broken.
func (p *process) exchange(ctx context.Context, request []byte) ([]byte, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { _ = p.conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	if err := wire.WriteFrame(p.conn, request); err != nil {
		return nil, err
	}
	return wire.ReadFrame(p.conn)
}

// failed kills the process, and returns the error of the request that met err.
func (p *process) failed(ctx context.Context, err error) error {
	late := ctx.Err()
	if late == nil { // it says more if it has ended by itself
		select {
		case <-p.ended:
		case <-time.After(time.Second):
		}
	}
	p.kill()
	switch {
	case errors.Is(err, wire.ErrMalformed), fault.KindOf(err) == fault.Invalid:
		return err
	case late != nil:
		return fault.WithKind(fault.Unavailable, late, "the plugin's process took too long, and was killed")
	}
	return fault.New(fault.Unavailable, "the plugin's process broke off: %w", p.why)
}

// kill ends the process at once, and returns when nothing is left of it.
func (p *process) kill() {
	p.forceful()
	<-p.ended
	p.close()
}

func (p *process) close() {
	p.once.Do(func() {
		if p.conn != nil {
			p.conn.Close()
		}
	})
}

// shutdown asks the process to end, and makes it.
func (p *process) shutdown() {
	ctx, cancel := context.WithTimeout(context.Background(), grace)
	defer cancel()
	if _, err := p.ask(ctx, methodShutdown, nil); err == nil {
		select {
		case <-p.ended:
		case <-ctx.Done():
		}
	}
	if !p.hasEnded() {
		p.terminate()
		<-p.ended
	}
	p.close()
}

// endedError says how a program ended, with the last words that it wrote.
func endedError(how string, stderr []byte) error {
	const maxSaid = 300
	if len(stderr) == 0 {
		return errors.New(how)
	}
	return fmt.Errorf("%s; it wrote %q", how, stderr[max(0, len(stderr)-maxSaid):])
}
