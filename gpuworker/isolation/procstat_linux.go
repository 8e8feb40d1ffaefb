package isolation

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"time"
)

// processStat is a part of /proc/PID/stat.
type processStat struct {
	cpu     time.Duration // of the process and the children that it has waited for
	memory  int64         // resident bytes
	threads int
}

// clockTick is the unit of times in /proc: USER_HZ is 100 on all machines that Go supports.
const clockTick = 10 * time.Millisecond

func readStat(pid int) (processStat, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return processStat{}, err
	}
	return parseStat(text)
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
	ticks := number(14) + number(15) + number(16) + number(17)
	s.cpu = time.Duration(ticks) * clockTick
	s.threads = int(number(20))
	s.memory = number(24) * int64(os.Getpagesize())
	return s, err
}
