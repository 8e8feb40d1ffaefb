package isolation

import (
	"context"
	"errors"
	"io/fs"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// listen passes on what init says until it ends.
func (e *execution) listen(background context.Context) {
	defer close(e.messages)
	for {
		m, _, _, err := e.ctl.receive()
		if err != nil {
			return
		}
		select {
		case e.messages <- m:
		case <-background.Done():
			return
		}
	}
}

// watch ends the program when it is over a limit, and returns init's last words when it has
// ended; none if init was killed.
//
//	running ──▶ exited
//	   ├── a limit other than time ──────────────────▶ killed
//	   └── time limit, context ──▶ SIGTERM ── grace ─▶ killed
//	                                  └─▶ exited
func (e *execution) watch(ctx context.Context) (last message) {
	wall := time.NewTimer(e.command.Limits.Wall)
	defer wall.Stop()
	tick := time.NewTicker(interval)
	defer tick.Stop()
	var grace <-chan time.Time
	over, done := e.output.over, ctx.Done()
	interrupt := func(v Verdict) {
		if e.outcome.Verdict != "" {
			e.kill() // a second reason: there is no more time
			return
		}
		e.outcome.Verdict = v
		if e.command.Limits.Grace == 0 || e.ctl.send(message{Kind: kindTerm}) != nil {
			e.kill()
			return
		}
		grace = time.After(e.command.Limits.Grace)
	}
	kill := func(v Verdict) {
		if e.outcome.Verdict == "" {
			e.outcome.Verdict = v
		}
		e.kill()
	}
	for {
		select {
		case m, ok := <-e.messages:
			if !ok {
				return last
			}
			if e.group.version == 0 {
				e.sampled = usage{cpu: m.CPU, memory: m.Memory, processes: m.Processes, peak: max(e.sampled.peak, m.Memory)}
			}
			if m.Kind == kindExited {
				return m
			}
		case <-tick.C:
			if v, limited := e.command.Limits.exceeded(e.usage()); limited {
				kill(v)
			}
		case <-over:
			over = nil
			kill(OutputLimit)
		case <-wall.C:
			interrupt(TimeLimit)
		case <-done:
			done = nil
			interrupt(Canceled)
		case <-grace:
			e.kill()
		}
	}
}

// kill kills all processes of the command.
func (e *execution) kill() {
	if e.level == Full {
		_ = e.process.Kill() // the kernel then kills all others of its namespace
		return
	}
	e.group.killAll() // init is in no cgroup of the command, and tells the end
}

// usage is what the command uses now.
func (e *execution) usage() usage {
	u := e.sampled
	if e.group.version > 0 {
		u = e.group.usage()
	}
	if e.level == Full {
		var stat unix.Statfs_t
		if unix.Fstatfs(int(e.scratchFile.Fd()), &stat) == nil {
			u.diskFull = stat.Bfree == 0 || stat.Ffree == 0
			if e.group.version == 0 { // a cgroup counts files in memory by itself
				u.memory += int64(stat.Blocks-stat.Bfree) * stat.Bsize
			}
		}
		return u
	}
	u.diskFull = e.scratchExceeds()
	if full, err := diskFull(e.scratchPath()); err == nil && full {
		e.noRoom = true
	}
	return u
}

// errFull ends a walk that has seen enough.
var errFull = errors.New("full")

// scratchExceeds says whether the folders on the disk are over the limits. It looks at no more
// than that takes.
func (e *execution) scratchExceeds() bool {
	bytes, files := int64(0), int64(0)
	err := filepath.WalkDir(e.scratchPath(), func(_ string, entry fs.DirEntry, err error) error {
		if err != nil || entry == nil {
			return nil // it is gone
		}
		files++
		if info, err := entry.Info(); err == nil {
			if stat, ok := info.Sys().(*syscall.Stat_t); ok {
				bytes += stat.Blocks * 512
			}
		}
		if bytes >= e.command.Limits.Disk || files >= e.command.Limits.Files+4 { // four folders are ours
			return errFull
		}
		return nil
	})
	return errors.Is(err, errFull)
}
