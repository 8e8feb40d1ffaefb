package sidecar

import (
	"context"
	"fmt"
	"net"
	"time"

	"rollout/gpuworker/isolation"
	"rollout/shared/fault"
)

// insideSocket is the path of the socket as a plugin in a sandbox sees it.
const insideSocket = "/tmp/rollout-plugin.sock"

// Limits of a plugin in a sandbox, besides those of its manifest.
const (
	maxLife  = 365 * 24 * time.Hour
	maxDisk  = 256 << 20
	maxFiles = 16 << 10
)

// startSandboxed starts the program in the sandbox, with a copy of its folder as its work folder.
func startSandboxed(ctx context.Context, o Options, conns chan<- net.Conn) (*process, error) {
	if level, reason := o.Sandbox.Probe(ctx); level != isolation.Full && ctx.Err() == nil {
		return nil, &fault.Error{Kind: fault.Denied, Err: fmt.Errorf("this machine cannot isolate the plugin: %s", reason),
			Remedy: "run a worker on a machine with Linux 5.12 or newer that permits user namespaces, or set trusted = true " +
				"if you trust the plugin"}
	}
	running, cancel := context.WithCancel(context.Background())
	p := &process{ended: make(chan struct{}), terminate: cancel, forceful: cancel}
	r := o.Manifest.Runtime
	command := isolation.Command{
		Args: o.Manifest.Entry.Sidecar.Args, Staged: []string{o.Dir}, Env: map[string]string{"PYTHONUNBUFFERED": "1"},
		Forwards: []isolation.Forward{{Path: insideSocket,
			Serve: func(_ context.Context, l net.Listener) error {
				accept(l, conns)
				return nil
			},
			Env: func(address string) map[string]string { return map[string]string{SocketVariable: address} },
		}},
		Limits: isolation.Limits{Wall: maxLife, CPU: maxLife, Memory: int64(r.MemoryMB) << 20, Processes: r.Processes,
			Output: maxOutput, Keep: keptOutput, Disk: maxDisk, Files: maxFiles, OutFiles: 1, OutBytes: 1,
			Grace: grace},
	}
	go func() {
		defer close(p.ended)
		defer cancel()
		outcome, err := o.Sandbox.Run(running, command)
		o.report("stdout", outcome.Stdout.Kept, outcome.Stdout.Bytes)
		o.report("stderr", outcome.Stderr.Kept, outcome.Stderr.Bytes)
		p.why = endedError(how(outcome, err), outcome.Stderr.Kept)
	}()
	return p, nil
}

// how says how a sandbox ended.
func how(o isolation.Outcome, err error) string {
	switch {
	case err != nil && !fault.Is(err, fault.Canceled):
		return err.Error()
	case o.Verdict == isolation.SetupFailed:
		return "it does not start: " + o.Reason
	case o.Verdict == isolation.Exited:
		return fmt.Sprintf("it ended with the exit code %d", o.ExitCode)
	case o.Verdict == isolation.Signaled:
		return "it ended by " + o.Signal
	case o.Verdict == isolation.Canceled:
		return "the worker ended it"
	}
	return "it reached its limit " + string(o.Verdict)
}
