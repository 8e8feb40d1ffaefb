package bucket

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// openForWriting reports whether a process of this machine has the open file fd open, or
// mapped, for writing.
//
// The kernel grants a read lease on a file that no process writes to, whoever the process
// belongs to. It grants one only to the file's owner, and only on a local file system.
// Elsewhere the open files of the processes in /proc are read, which shows those of the same
// user alone (root sees all). A writer on another machine, and one of another user on a file
// of another user, cannot be seen.
func openForWriting(fd int, files *openFiles) bool {
	_, err := unix.FcntlInt(uintptr(fd), unix.F_SETLEASE, unix.F_RDLCK)
	switch {
	case err == nil: // nothing can be done if it can't be given back: closing fd ends it
		_, _ = unix.FcntlInt(uintptr(fd), unix.F_SETLEASE, unix.F_UNLCK)
		return false
	case errors.Is(err, unix.EAGAIN):
		return true
	}
	return files.processOf(fd) != ""
}

// openFiles are the files that processes have open for writing, as far as /proc shows them to
// this user. Reading /proc takes milliseconds, so that it is read once, when a file is first
// looked up; files that are opened later are not among them. The zero value is ready. It is
// not safe for concurrent use.
type openFiles struct {
	processes map[fileID]string // the folder of a process that has it open; nil before /proc is read
}

// fileID is what a file is known by while it is open.
type fileID struct{ device, inode uint64 }

// processOf returns the folder in /proc of a process that has the open file fd open for
// writing; "" without one. Example: "/proc/4711".
func (o *openFiles) processOf(fd int) string {
	var st unix.Stat_t
	if unix.Fstat(fd, &st) != nil {
		return ""
	}
	if o.processes == nil {
		o.read()
	}
	return o.processes[fileID{st.Dev, st.Ino}]
}

// read reads the open files of all processes.
func (o *openFiles) read() {
	o.processes = map[fileID]string{}
	folders, err := filepath.Glob("/proc/[0-9]*/fd")
	if err != nil {
		return
	}
	for _, folder := range folders {
		files, err := os.ReadDir(folder)
		if err != nil { // of another user, or ended meanwhile
			continue
		}
		process := filepath.Dir(folder)
		for _, f := range files {
			var st unix.Stat_t
			if unix.Stat(folder+"/"+f.Name(), &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFREG {
				continue
			}
			id := fileID{st.Dev, st.Ino}
			if o.processes[id] == "" && writes(process+"/fdinfo/"+f.Name()) {
				o.processes[id] = process
			}
		}
	}
}

// writerOf names a process that has the open file fd open for writing; "" without one.
// Example: "python3 (process 4711)".
func (o *openFiles) writerOf(fd int) string {
	process := o.processOf(fd)
	if process == "" {
		return ""
	}
	name, _ := os.ReadFile(process + "/comm") // without it, its number says enough
	return strings.TrimLeft(fmt.Sprintf("%s (process %s)", strings.TrimSpace(string(name)), filepath.Base(process)), " ")
}

// writes reports whether a file of /proc/PID/fdinfo describes a descriptor that is open for
// writing.
func writes(fdinfo string) bool {
	f, err := os.Open(fdinfo)
	if err != nil {
		return false
	}
	defer f.Close() // opened for reading; closing cannot lose data
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if octal, ok := strings.CutPrefix(lines.Text(), "flags:"); ok {
			flags, err := strconv.ParseUint(strings.TrimSpace(octal), 8, 64)
			return err == nil && flags&unix.O_ACCMODE != unix.O_RDONLY
		}
	}
	return false
}
