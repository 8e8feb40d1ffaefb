package disktest

import (
	"fmt"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"rollout/shared/disk"
)

// Process makes the calls of one process on a machine's disk, until it ends. Then each
// call fails with EIO and has no effect.
type Process struct {
	machine *Machine
	calls   int
	lives   int    // the calls that it may make; -1 means any number
	end     func() // called when it ends, before the call that comes too late
	ended   bool
}

var _ disk.Disk = (*Process)(nil)

// Start starts a process that does not end.
func (m *Machine) Start() *Process { return &Process{machine: m, lives: -1} }

// startFor starts a process that ends after some calls. It then calls end.
func (m *Machine) startFor(calls int, end func()) *Process {
	return &Process{machine: m, lives: calls, end: end}
}

// Another starts another process of the same machine, which is killed after some calls.
func (p *Process) Another(calls int) *Process { return p.machine.startFor(calls, nil) }

// do performs a call unless the process has ended.
func (p *Process) do(call func() error) error {
	p.machine.mu.Lock()
	defer p.machine.mu.Unlock()
	if !p.ended && p.calls == p.lives {
		p.ended = true
		if p.end != nil {
			p.end()
		}
	}
	if p.ended {
		return unix.EIO
	}
	p.calls++
	return call()
}

// Mkdir implements disk.Disk.
func (p *Process) Mkdir(folder int, name string) error {
	return p.do(func() error {
		in, base := p.machine.at(folder, name)
		if err := (disk.System{}).Mkdir(folder, name); err != nil || in == nil {
			return err
		}
		p.machine.created(in, base, folder, name, true)
		return nil
	})
}

// Create implements disk.Disk.
func (p *Process) Create(folder int, name string, mode uint32) (fd int, err error) {
	err = p.do(func() error {
		if name == "" {
			fd, err = disk.System{}.Create(folder, "", mode)
			if err == nil {
				p.machine.live[mustStat(fd, "")] = &node{}
			}
			return err
		}
		in, base := p.machine.at(folder, name)
		if fd, err = (disk.System{}).Create(folder, name, mode); err == nil && in != nil {
			p.machine.created(in, base, folder, name, false)
		}
		return err
	})
	return fd, err
}

// Name implements disk.Disk.
func (p *Process) Name(fd, folder int, name string) error {
	return p.do(func() error {
		in, base := p.machine.at(folder, name)
		if err := (disk.System{}).Name(fd, folder, name); err != nil || in == nil {
			return err
		}
		p.machine.change(in, base, p.machine.live[mustStat(fd, "")], &call{})
		return nil
	})
}

// Link implements disk.Disk.
func (p *Process) Link(fromFolder int, from string, toFolder int, to string) error {
	return p.do(func() error {
		source, sourceBase := p.machine.at(fromFolder, from)
		target, targetBase := p.machine.at(toFolder, to)
		if err := (disk.System{}).Link(fromFolder, from, toFolder, to); err != nil || target == nil {
			return err
		}
		p.machine.change(target, targetBase, source.now(sourceBase), &call{})
		return nil
	})
}

// Rename implements disk.Disk.
func (p *Process) Rename(fromFolder int, from string, toFolder int, to string, replace bool) error {
	return p.do(func() error {
		source, sourceBase := p.machine.at(fromFolder, from)
		target, targetBase := p.machine.at(toFolder, to)
		replaced, content := p.machine.ending(toFolder, to)
		if err := (disk.System{}).Rename(fromFolder, from, toFolder, to, replace); err != nil || target == nil {
			return err
		}
		if replaced != nil {
			p.machine.drop(replaced, content)
		}
		moved, both := source.now(sourceBase), &call{}
		p.machine.change(source, sourceBase, nil, both)
		p.machine.change(target, targetBase, moved, both)
		return nil
	})
}

// Remove implements disk.Disk.
func (p *Process) Remove(folder int, name string, isFolder bool) error {
	return p.do(func() error {
		in, base := p.machine.at(folder, name)
		removed, content := p.machine.ending(folder, name)
		if err := (disk.System{}).Remove(folder, name, isFolder); err != nil || in == nil {
			return err
		}
		if removed != nil {
			p.machine.drop(removed, content)
		}
		p.machine.change(in, base, nil, &call{})
		return nil
	})
}

// Sync implements disk.Disk.
func (p *Process) Sync(fd int) error {
	site := callSite()
	return p.do(func() error {
		var st unix.Stat_t
		if err := unix.Fstat(fd, &st); err != nil {
			return err
		}
		n := p.machine.known(idOf(&st))
		if n == nil {
			return nil // a folder above the machine's
		}
		if p.machine.sites[site] = true; site == p.machine.ignored {
			return nil
		}
		var content []byte
		if !n.folder {
			content = make([]byte, st.Size)
			if _, err := unix.Pread(fd, content, 0); err != nil {
				return err
			}
		}
		p.machine.sync(n, content, time.Unix(st.Mtim.Unix()))
		return nil
	})
}

// sitePlaces is how many calls up its callers a call site names: enough to tell the users
// of package disk and of a driver's own helpers apart.
const sitePlaces = 3

// callSite returns the calls outside of this package that led to a sync.
func callSite() string {
	pcs := make([]uintptr, 24)
	frames := runtime.CallersFrames(pcs[:runtime.Callers(3, pcs)])
	var site []string
	for {
		f, more := frames.Next()
		if strings.HasSuffix(f.File, "_test.go") || !strings.Contains(f.Function, "rollout/") {
			break
		}
		site = append(site, fmt.Sprintf("%s:%d", filepath.Base(f.File), f.Line))
		if !more || len(site) == sitePlaces {
			break
		}
	}
	return strings.Join(site, " < ")
}

// at returns the folder that contains the name, and the name's last part. The folder is
// nil if it does not belong to the machine.
func (m *Machine) at(folder int, name string) (in *node, base string) {
	dir, base := filepath.Split(name)
	var st unix.Stat_t
	var err error
	if folder == disk.AtWorkingDir {
		err = unix.Stat(filepath.Clean("./"+dir), &st)
		if filepath.IsAbs(name) {
			err = unix.Stat(dir, &st)
		}
	} else {
		err = unix.Fstat(folder, &st)
	}
	if err != nil {
		return nil, base
	}
	if in = m.known(idOf(&st)); in == nil {
		return nil, base
	}
	exists := unix.Fstatat(folder, name, &st, unix.AT_SYMLINK_NOFOLLOW) == nil
	if exists != (in.now(base) != nil) { // it was made or removed without the machine
		m.observe(m.top, m.root)
	}
	return in, base
}

// known returns the file or folder, nil if it does not belong to the machine.
func (m *Machine) known(id inode) *node {
	if n := m.live[id]; n != nil {
		return n
	}
	m.observe(m.top, m.root)
	return m.live[id]
}

// created notes a new file or folder.
func (m *Machine) created(in *node, base string, folder int, name string, isFolder bool) {
	n := &node{folder: isFolder, names: map[string]*node{}}
	m.live[mustStat(folder, name)] = n
	m.change(in, base, n, &call{})
}

// ending returns the file or folder that ends when the name is removed, and the file's
// content. It returns nil if there is none, or if it has other names.
func (m *Machine) ending(folder int, name string) (*node, []byte) {
	var st unix.Stat_t
	if unix.Fstatat(folder, name, &st, unix.AT_SYMLINK_NOFOLLOW) != nil {
		return nil, nil
	}
	n := m.known(idOf(&st))
	if n == nil || n.folder {
		return n, nil
	}
	if st.Nlink > 1 {
		return nil, nil
	}
	fd, err := unix.Openat(folder, name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	must(err)
	defer unix.Close(fd)
	content := make([]byte, st.Size)
	_, err = unix.Pread(fd, content, 0)
	must(err)
	return n, content
}

// mustStat identifies the open file fd, or with a name the one in the folder fd.
func mustStat(fd int, name string) inode {
	var st unix.Stat_t
	if name == "" {
		must(unix.Fstat(fd, &st))
	} else {
		must(unix.Fstatat(fd, name, &st, unix.AT_SYMLINK_NOFOLLOW))
	}
	return idOf(&st)
}
