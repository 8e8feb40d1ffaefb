package process

import (
	"fmt"
	"syscall"

	"rollout/shared/fault"
)

// ownFiles is how many open files a worker needs besides a connection for
// each request in flight: its state, its bucket, what watches them.
const ownFiles = 64

// checkFiles refuses more requests at once than the process may have
// connections: they would fail one by one, and with them the files of the
// worker's state. Go has raised the soft limit to the hard one by now.
func checkFiles(inFlight int) error {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return nil // then the system tells when it is reached
	}
	return fitFiles(inFlight, limit.Cur)
}

func fitFiles(inFlight int, limit uint64) error {
	need := uint64(inFlight) + ownFiles
	if need <= limit {
		return nil
	}
	remedy := fmt.Sprintf("raise the limit (ulimit -n %d)", need)
	if limit > ownFiles {
		remedy += fmt.Sprintf(" or lower in_flight of [worker] to %d", limit-ownFiles)
	}
	return &fault.Error{Kind: fault.Invalid, Remedy: remedy,
		Op: fmt.Sprintf("in_flight = %d needs %d open files, this process may have %d", inFlight, need, limit)}
}
