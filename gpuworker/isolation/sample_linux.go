package isolation

import (
	"os"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// sampler adds up what a command's processes use, where no cgroup does. Init has one, in the
// command's pid namespace, so that no process of the command can leave it.
type sampler struct {
	processes *os.File // a /proc that hides nothing

	mu    sync.Mutex
	alive map[processKey]time.Duration // CPU time of the processes of the last sample
	ended time.Duration                // CPU time of those of earlier samples, as far as it was seen
}

// processKey names a process for good: its number may be used again.
type processKey struct {
	pid   int
	start int64 // when it began, in ticks
}

// watch sends a sample at each interval.
func (s *sampler) watch(ctl channel, interval time.Duration) {
	for range time.Tick(interval) {
		if ctl.send(s.sample(kindSample)) != nil {
			return
		}
	}
}

// sample adds up what the processes use now and what the ended ones have used.
//
// The kernel adds the CPU time of a process to its parent's when that one waits for it. A
// parent that ignores the end of its children gets nothing. What samples have seen of each
// process is therefore added up as well, and the higher sum counts.
func (s *sampler) sample(kind string) message {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := message{Kind: kind}
	var children unix.Rusage
	if unix.Getrusage(unix.RUSAGE_CHILDREN, &children) == nil {
		m.CPU = time.Duration(children.Utime.Nano() + children.Stime.Nano())
	}
	now := map[processKey]time.Duration{}
	for _, pid := range s.pids() {
		stat, err := readStat(s.processes, pid)
		if err != nil {
			continue // it has ended
		}
		m.CPU += stat.cpu + stat.children
		m.Memory += stat.memory
		m.Processes += stat.threads
		now[processKey{pid, stat.start}] = stat.cpu
	}
	seen := time.Duration(0)
	for key, cpu := range s.alive {
		if _, lives := now[key]; !lives {
			s.ended += cpu
		}
	}
	for _, cpu := range now {
		seen += cpu
	}
	s.alive = now
	m.CPU = max(m.CPU, s.ended+seen)
	return m
}

// pids returns the processes but init. The limit of processes bounds them.
func (s *sampler) pids() (pids []int) {
	if _, err := s.processes.Seek(0, 0); err != nil {
		return nil
	}
	names, _ := s.processes.Readdirnames(-1)
	for _, name := range names {
		if pid, err := strconv.Atoi(name); err == nil && pid != os.Getpid() {
			pids = append(pids, pid)
		}
	}
	return pids
}

// largestChild returns the most bytes that one of the ended processes has had.
func largestChild() int64 {
	var children unix.Rusage
	if unix.Getrusage(unix.RUSAGE_CHILDREN, &children) != nil {
		return 0
	}
	return children.Maxrss << 10
}
