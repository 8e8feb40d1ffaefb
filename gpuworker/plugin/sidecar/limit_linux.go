package sidecar

import (
	"syscall"

	"golang.org/x/sys/unix"

	"rollout/shared/config"
	"rollout/shared/fault"
)

// attributes make the program the first of a group, which ends with the worker.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// openFiles is how many files each process of a program may have open, as in the sandbox.
const openFiles = 1024

// limit bounds the memory and the open files of each process of a program.
func limit(pid int, r config.PluginRuntime) error {
	for _, l := range []struct {
		resource int
		most     uint64
	}{{unix.RLIMIT_DATA, uint64(r.MemoryMB) << 20}, {unix.RLIMIT_NOFILE, openFiles}} {
		err := unix.Prlimit(pid, l.resource, &unix.Rlimit{Cur: l.most, Max: l.most}, nil)
		if err != nil && err != unix.ESRCH { // it has ended
			return fault.WithKind(fault.Unavailable, err, "limit the plugin's program")
		}
	}
	return nil
}
