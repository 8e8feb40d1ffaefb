package isolation

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// processStat is what the kernel tells of a process.
type processStat struct {
	cpu      time.Duration // of the process
	children time.Duration // of the children that it has waited for
	memory   int64         // resident and swapped bytes
	threads  int
	start    int64 // when it began, in ticks
}

// clockTick is the unit of times in /proc: USER_HZ is 100 on all machines that Go supports.
const clockTick = 10 * time.Millisecond

// readStat reads the state of a process from a /proc.
func readStat(processes *os.File, pid int) (processStat, error) {
	text, err := readAt(processes, fmt.Sprintf("%d/stat", pid))
	if err != nil {
		return processStat{}, err
	}
	s, err := parseStat(text)
	if err != nil {
		return s, err
	}
	if text, err = readAt(processes, fmt.Sprintf("%d/status", pid)); err == nil {
		s.memory += parseSwapped(text)
	}
	return s, err
}

// readAt reads a file below a folder.
func readAt(dir *os.File, path string) ([]byte, error) {
	fd, err := unix.Openat(int(dir.Fd()), path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	file := os.NewFile(uintptr(fd), path)
	defer file.Close()
	return io.ReadAll(file)
}

// parseStat reads the fields of proc_pid_stat(5). The second, the program's name in brackets,
// is the command's choice and may have brackets and spaces itself.
func parseStat(text []byte) (s processStat, err error) {
	fields := bytes.Fields(text[bytes.LastIndexByte(text, ')')+1:])
	number := func(field int) int64 {
		at := field - 3 // the first after the name is field 3
		if at >= len(fields) {
			err = fmt.Errorf("a process's state has no field %d", field)
			return 0
		}
		n, e := strconv.ParseInt(string(fields[at]), 10, 64)
		if e != nil {
			err = e
		}
		return n
	}
	s.cpu = time.Duration(number(14)+number(15)) * clockTick
	s.children = time.Duration(number(16)+number(17)) * clockTick
	s.threads = int(number(20))
	s.start = number(22)
	s.memory = number(24) * int64(os.Getpagesize())
	return s, err
}

// parseSwapped returns the swapped bytes of proc_pid_status(5); 0 of a process that has none.
func parseSwapped(text []byte) int64 {
	_, after, _ := bytes.Cut(text, []byte("\nVmSwap:"))
	fields := bytes.Fields(after)
	if len(fields) == 0 {
		return 0
	}
	n, _ := strconv.ParseInt(string(fields[0]), 10, 64)
	return n << 10
}
