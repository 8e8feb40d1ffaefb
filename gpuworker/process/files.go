package process

import (
	"fmt"
	"syscall"

	"rollout/shared/config"
	"rollout/shared/fault"
)

// ownFiles is how many open files a worker needs besides a connection for
// each request in flight: its state, its bucket, what watches them.
const ownFiles = 64

// withinFiles refuses more requests at once than the process may have
// connections: they would fail one by one, and with them the files of the
// worker's state. Where their number is found by trying, it is bounded instead.
// Go has raised the soft limit to the hard one by now.
func withinFiles(w config.Worker, servers int) (config.Worker, error) {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return w, nil // then the system tells when it is reached
	}
	if w.InFlight == 0 {
		return boundFiles(w, max(servers, 1), limit.Cur)
	}
	return w, fitFiles(w.InFlight, limit.Cur)
}

func boundFiles(w config.Worker, servers int, limit uint64) (config.Worker, error) {
	if err := fitFiles(servers*w.MinInFlight, limit); err != nil {
		return w, err
	}
	w.MaxInFlight = int(min(uint64(w.MaxInFlight), (limit-ownFiles)/uint64(servers)))
	return w, nil
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
