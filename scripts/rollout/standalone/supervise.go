package standalone

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"rollout/gpuworker/supervise"
	"rollout/shared/fault"
	"rollout/shared/observe"
)

// supervise keeps one worker process of the pool alive until the product stops. It returns an error if the worker's
// exit code says that a restart cannot help.
func (r *Runtime) supervise(ctx context.Context, pool string) error {
	w := supervise.Worker{
		Command: append(r.o.Worker[:len(r.o.Worker):len(r.o.Worker)], "--pool", pool),
		Log:     r.o.Local.Ports.Log.With(observe.KeyPool, pool),
		OnStart: r.killIfStalled,
	}
	if r.o.WorkerOutput != nil {
		w.Stdout, w.Stderr = r.o.WorkerOutput()
	}
	switch w.Run(ctx, r.stopping) {
	case supervise.ExitUsage:
		return fault.New(fault.Invalid,
			"worker of pool %s: its arguments or its config are invalid; its own error message is above", pool)
	case supervise.ExitDamaged: // no worker may continue with damaged state
		r.requestStop()
		return fault.New(fault.Corrupt, "worker of pool %s found damaged state; its own error message is above", pool)
	}
	return nil
}

// killIfStalled kills worker process p once it has been stopped (by SIGSTOP or a debugger) for the failure timeout
// while it holds a lock of the state. By then it counts as failed, and until it is gone it blocks all writers.
// It returns when ctx ends or p is killed.
func (r *Runtime) killIfStalled(ctx context.Context, p *os.Process) {
	limit := r.o.Deployment.Health.FailureTimeout.Std()
	if limit <= 0 {
		return
	}
	tick := time.NewTicker(limit / 4)
	defer tick.Stop()
	var since time.Time // when it was first seen stalled; zero if it was not stalled at the last check
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			lock := stalledLock(p.Pid, r.o.Local.Dir)
			switch {
			case lock == "":
				since = time.Time{}
			case since.IsZero():
				since = now
			case now.Sub(since) >= limit:
				r.o.Local.Ports.Log.WarnContext(ctx, "killing a stopped worker process that blocks all writers",
					"pid", p.Pid, "for", now.Sub(since), "lock", lock)
				_ = p.Kill() // fails only if it has ended already
				return
			}
		}
	}
}

// stalledLock returns a file under dir on which a stopped process holds a lock. It returns "" if the process runs or
// holds no such lock. It reads /proc, so outside Linux it always returns "".
func stalledLock(pid int, dir string) string {
	proc := filepath.Join("/proc", strconv.Itoa(pid))
	stat, err := os.ReadFile(filepath.Join(proc, "stat"))
	if err != nil {
		return ""
	}
	// The state follows the process name, which is in parentheses and may contain any character.
	if i := bytes.LastIndexByte(stat, ')'); i < 0 || i+2 >= len(stat) || stat[i+2] != 'T' {
		return ""
	}
	dir, err = filepath.Abs(dir)
	if err != nil {
		return ""
	}
	fds, err := os.ReadDir(filepath.Join(proc, "fd"))
	if err != nil {
		return ""
	}
	for _, fd := range fds {
		file, err := os.Readlink(filepath.Join(proc, "fd", fd.Name()))
		if err != nil || !within(file, dir) {
			continue
		}
		info, err := os.ReadFile(filepath.Join(proc, "fdinfo", fd.Name()))
		if err == nil && bytes.Contains(info, []byte("FLOCK")) {
			return file
		}
	}
	return ""
}

func within(file, dir string) bool {
	rel, err := filepath.Rel(dir, file)
	return err == nil && filepath.IsLocal(rel)
}
