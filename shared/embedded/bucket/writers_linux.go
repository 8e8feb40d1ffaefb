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
func openForWriting(fd int) bool {
	_, err := unix.FcntlInt(uintptr(fd), unix.F_SETLEASE, unix.F_RDLCK)
	switch {
	case err == nil: // nothing can be done if it can't be given back: closing fd ends it
		_, _ = unix.FcntlInt(uintptr(fd), unix.F_SETLEASE, unix.F_UNLCK)
		return false
	case errors.Is(err, unix.EAGAIN):
		return true
	}
	return writerOf(fd) != ""
}

// writerOf names a process that has the open file fd open for writing, as far as /proc shows
// it to this user; "" without one. Example: "python3 (process 4711)".
func writerOf(fd int) string {
	var want unix.Stat_t
	if unix.Fstat(fd, &want) != nil {
		return ""
	}
	processes, err := filepath.Glob("/proc/[0-9]*/fd")
	if err != nil {
		return ""
	}
	for _, dir := range processes {
		files, err := os.ReadDir(dir)
		if err != nil { // of another user, or ended meanwhile
			continue
		}
		for _, f := range files {
			var st unix.Stat_t
			if unix.Stat(dir+"/"+f.Name(), &st) != nil || st.Ino != want.Ino || st.Dev != want.Dev {
				continue
			}
			process := filepath.Dir(dir)
			if writes(process + "/fdinfo/" + f.Name()) {
				name, _ := os.ReadFile(process + "/comm") // without it, its number says enough
				return strings.TrimLeft(fmt.Sprintf("%s (process %s)", strings.TrimSpace(string(name)),
					filepath.Base(process)), " ")
			}
		}
	}
	return ""
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
