package process

import (
	"fmt"
	"syscall"

	"rollout/shared/config"
	"rollout/shared/fault"
)

// ownFiles is how many open files a worker needs beside one connection for each
// request in flight: for its state, its bucket and their watches.
const ownFiles = 64

// withinFiles checks that the process may have a connection for each request at
// once: otherwise requests would fail, and the files of the worker's state too. A
// number that is found by trying is bounded instead. Go has raised the soft limit
// to the hard one by now.
func withinFiles(w config.Worker, servers int) (config.Worker, error) {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return w, nil // an error shows when the limit is reached
	}
	if w.InFlight == 0 {
		return boundFiles(w, max(servers, 1), limit.Cur)
	}
	return w, fitFiles(w.InFlight, limit.Cur)
}

// boundFiles bounds MaxInFlight of each server by the limit of open files.
func boundFiles(w config.Worker, servers int, limit uint64) (config.Worker, error) {
	if err := fitFiles(servers*w.MinInFlight, limit); err != nil {
		return w, err
	}
	w.MaxInFlight = int(min(uint64(w.MaxInFlight), (limit-ownFiles)/uint64(servers)))
	return w, nil
}

// fitFiles returns an error if so many requests need more open files than the
// limit.
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
