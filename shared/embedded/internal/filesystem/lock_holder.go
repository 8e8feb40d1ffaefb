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

// Holder is a process that holds a lock.
type Holder struct {
	PID     int
	Name    string // of its program
	Stopped bool   // by a signal or a debugger, until SIGCONT
}

// HolderOf returns the process that holds a flock on the file, according to Linux's
// /proc. It returns false on other systems, and for a process that is not visible
// here, such as one in another container.
func HolderOf(f *os.File) (h Holder, ok bool) {
	info, err := f.Stat()
	if err != nil {
		return h, false
	}
	locks, err := os.ReadFile("/proc/locks")
	if err != nil {
		return h, false
	}
	// On some file systems /proc/locks and stat report different devices, so the
	// inode decides, and the open files of the process confirm it.
	for _, pid := range flocks(locks, InodeNumber(info)) {
		if hasOpen(pid, info) {
			return inspect(pid), true
		}
	}
	return h, false
}

// flocks returns the processes that hold a flock on a file with the inode, from the
// lines of /proc/locks:
//
//	1: FLOCK  ADVISORY  WRITE 1234 fe:00:9978552 0 EOF
//	1: -> FLOCK  ADVISORY  WRITE 1235 fe:00:9978552 0 EOF    (a waiting process)
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

// hasOpen reports whether the process has the file open. It returns true if it
// cannot tell: another user's process does not show its files.
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

// inspect reads the name and the state of a process from /proc.
func inspect(pid int) Holder {
	h := Holder{PID: pid}
	// The format is "1234 (name) T …". The name may contain parentheses and spaces.
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

// remedy returns what to do about a lock that the process has held for long.
func (h Holder) remedy() string {
	process := fmt.Sprintf("process %d (%s)", h.PID, h.Name)
	if h.Stopped {
		return fmt.Sprintf("%s holds it and is stopped: continue it (kill -CONT %d) or end it (kill -9 %d)",
			process, h.PID, h.PID)
	}
	return fmt.Sprintf("%s holds it: if it hangs, end it (kill -9 %d); committed writes are kept", process, h.PID)
}

// LockRemedy returns what to do about the first of the locks that is held.
func LockRemedy(locks ...*os.File) string {
	for _, f := range locks {
		if h, ok := HolderOf(f); ok {
			return h.remedy()
		}
	}
	return "another process holds it: if that process is stopped, continue or kill it"
}

// InodeNumber returns the inode number of a file, 0 if it is unknown.
func InodeNumber(info os.FileInfo) uint64 {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0
	}
	return st.Ino
}
