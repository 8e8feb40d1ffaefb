package standalone

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strconv"
	"time"
)

// watchStalled kills a worker process that was stopped (SIGSTOP, a debugger)
// while it held a lock of the state, once it has been so for the failure
// timeout: by then it counts as dead anyway, and until it is gone nobody else
// can write.
func (s *Runtime) watchStalled(ctx context.Context, p *os.Process) {
	limit := s.o.Deployment.Health.FailureTimeout.Std()
	if limit <= 0 {
		return
	}
	tick := time.NewTicker(limit / 4)
	defer tick.Stop()
	var since time.Time // of what was seen at every look since then
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			lock := stalled(p.Pid, s.o.Local.Dir)
			switch {
			case lock == "":
				since = time.Time{}
			case since.IsZero():
				since = now
			case now.Sub(since) >= limit:
				s.o.Local.Ports.Log.WarnContext(ctx, "worker process is stopped and keeps everybody from writing: it is killed", "pid", p.Pid, "for", now.Sub(since), "lock", lock)
				_ = p.Kill() // it may be gone already
				return
			}
		}
	}
}

// stalled returns the file of the installation that a stopped process holds a
// lock on; "" if it is not stopped or holds none. It reads what Linux tells
// about processes, and finds none elsewhere.
func stalled(pid int, dir string) string {
	proc := filepath.Join("/proc", strconv.Itoa(pid))
	stat, err := os.ReadFile(filepath.Join(proc, "stat"))
	if err != nil {
		return ""
	}
	// The state comes behind the name, which is in parentheses and may hold
	// anything.
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
