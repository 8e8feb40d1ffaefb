package filesystem

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// Holder is the process that has a lock.
type Holder struct {
	PID     int
	Name    string // of its program
	Stopped bool   // by a signal or a debugger: it goes on when it is told to
}

// HolderOf finds who holds a lock on the file, by what Linux tells of locks
// and processes; elsewhere, and for processes that can't be seen from here, it
// finds nobody.
func HolderOf(f *os.File) (h Holder, ok bool) {
	info, err := f.Stat()
	if err != nil {
		return h, false
	}
	locks, err := os.ReadFile("/proc/locks")
	if err != nil {
		return h, false
	}
	// The device is told otherwise than stat does on some file systems: whether
	// it is this file is asked of the process.
	for _, pid := range flocks(locks, InodeNumber(info)) {
		if hasOpen(pid, info) {
			return inspect(pid), true
		}
	}
	return h, false
}

// flocks are the processes that hold a flock on a file with the inode, in the
// lines of /proc/locks:
//
//	1: FLOCK  ADVISORY  WRITE 1234 fe:00:9978552 0 EOF
//	1: -> FLOCK  ADVISORY  WRITE 1235 fe:00:9978552 0 EOF    (one that waits)
func flocks(locks []byte, inode uint64) (pids []int) {
	for line := range strings.Lines(string(locks)) {
		fields := strings.Fields(line)
		if len(fields) < 6 || fields[1] != "FLOCK" {
			continue
		}
		pid, err := strconv.Atoi(fields[4])
		if err == nil && pid > 0 && strings.HasSuffix(fields[5], fmt.Sprintf(":%d", inode)) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// hasOpen reports whether the process has the file open, or may have: another
// user's processes show nothing.
func hasOpen(pid int, want os.FileInfo) bool {
	files := filepath.Join("/proc", strconv.Itoa(pid), "fd")
	names, err := os.ReadDir(files)
	if err != nil {
		return os.IsPermission(err)
	}
	for _, name := range names {
		if info, err := os.Stat(filepath.Join(files, name.Name())); err == nil && os.SameFile(info, want) {
			return true
		}
	}
	return false
}

// inspect tells what /proc does of a process.
func inspect(pid int) Holder {
	h := Holder{PID: pid}
	// 1234 (name) T …: the name may hold anything.
	stat, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	open, end := bytes.IndexByte(stat, '('), bytes.LastIndexByte(stat, ')')
	if err != nil || open < 0 || end < open {
		return h
	}
	h.Name = string(stat[open+1 : end])
	state := bytes.TrimSpace(stat[end+1:])
	h.Stopped = len(state) > 0 && (state[0] == 'T' || state[0] == 't')
	return h
}

// remedy says what to do about a lock that somebody has held for long.
func (h Holder) remedy() string {
	who := fmt.Sprintf("process %d (%s)", h.PID, h.Name)
	if h.Stopped {
		return fmt.Sprintf("%s holds it and is stopped: continue it (kill -CONT %d) or end it (kill -9 %d)", who, h.PID, h.PID)
	}
	return fmt.Sprintf("%s holds it: if it hangs, end it (kill -9 %d); what it has committed stays", who, h.PID)
}

// LockRemedy says what to do about one of the locks, whoever holds it.
func LockRemedy(locks ...*os.File) string {
	for _, f := range locks {
		if h, ok := HolderOf(f); ok {
			return h.remedy()
		}
	}
	return "another process holds it; if that process is stopped, continue or kill it"
}

// InodeNumber is the number of the file in its file system.
func InodeNumber(info os.FileInfo) uint64 {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0
	}
	return st.Ino
}
