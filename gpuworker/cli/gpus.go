package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"sync"
	"time"

	"rollout/gpuworker/process"
	"rollout/gpuworker/supervise"
	"rollout/shared/capacity"
	"rollout/shared/fault"
)

// noGPU is the --gpu of a worker that has no GPU of its own.
const noGPU = -1

// hopeless is how long a worker may fail again and again on a rented machine.
const hopeless = 20 * time.Minute

// runPerGPU runs a worker process for each of the GPUs until all have left, and
// tells how the last one's end came about.
func (f flags) runPerGPU(ctx context.Context, s *workplace) (process.ExitReason, error) {
	if f.metrics != "" && len(f.gpus) > 1 {
		return "", &fault.Error{Kind: fault.Invalid, Err: errors.New("--metrics is one address, and --gpus starts several workers"), Remedy: "leave one of them out"}
	}
	for i, gpu := range f.gpus {
		if gpu < 0 || slices.Contains(f.gpus[:i], gpu) {
			return "", fault.New(fault.Invalid, "--gpus: %d is no GPU's number, or is there twice", gpu)
		}
		if _, err := engineOf(s.deployment.Engine.WithURLs(f.engine).Servers(), f.gpus, gpu); err != nil {
			return "", err
		}
	}
	self, err := os.Executable()
	if err != nil {
		return "", fault.WithKind(fault.Internal, err, "find this program")
	}
	ctx, asked, _ := process.NotifyShutdown(ctx, f.parent)
	patience := time.Duration(0)
	if s.rented(ctx) {
		patience = hopeless
	}
	var all sync.WaitGroup
	codes := make(chan int, len(f.gpus)) // in the order of their ends
	for _, gpu := range f.gpus {
		n := strconv.Itoa(gpu)
		w := supervise.Worker{Command: append([]string{self}, append(slices.Clone(os.Args[1:]), "--gpu", n)...),
			Env: []string{"CUDA_VISIBLE_DEVICES=" + n}, Log: s.ports.Log.With("gpu", gpu), FinalCodes: []int{0, exitIdle, exitUnfit, exitHopeless, exitBroken}, MaxFailing: patience}
		all.Go(func() { codes <- w.Run(ctx, asked.Done()) })
	}
	all.Wait()
	close(codes)
	end, err := s.endOf(ctx, codes)
	if err == nil && asked.Err() != nil {
		return process.Requested, nil
	}
	return end, err
}

// endOf is how a crew has ended whose workers had these exit codes, in the order
// of their ends.
func (s *workplace) endOf(ctx context.Context, codes <-chan int) (process.ExitReason, error) {
	end := process.Requested
	anyFit := false
	for code := range codes {
		anyFit = anyFit || code == exitIdle || code == exitUnfit
		switch code {
		case supervise.ExitUsage:
			return "", fault.New(fault.Invalid, "a worker's arguments or config are wrong; its own words are above")
		case supervise.ExitDamaged:
			return "", fault.New(fault.Corrupt, "a worker found the state damaged; its own words are above")
		case 0:
		case exitIdle:
			end = process.Idle
		case exitUnfit:
			end = process.MachineLost
		case exitHopeless:
			end = process.Unusable
		case exitBroken:
			end = process.GPUFailed
		default: // another machine would do no better while nobody mends it
			s.ports.Log.ErrorContext(ctx, "a worker that fails again and again is given up; its own words are above", "code", code)
			end = process.Unusable
		}
	}
	if anyFit { // which says that a machine can be worked on
		switch end {
		case process.Unusable:
			end = process.Idle
		case process.GPUFailed:
			end = process.MachineLost
		}
	}
	return end, nil
}

// engineOf is the server of one GPU's worker among those of all GPUs: its own,
// or the one that there is.
func engineOf(servers []string, gpus []int, gpu int) ([]string, error) {
	at := slices.Index(gpus, gpu)
	switch {
	case len(servers) <= 1:
		return servers, nil
	case len(servers) == len(gpus) && at >= 0:
		return servers[at : at+1], nil
	}
	return nil, &fault.Error{Kind: fault.Invalid, Err: fmt.Errorf("there are %d engines for %d GPUs", len(servers), len(gpus)), Remedy: "name one --engine for each of --gpus, in the same order"}
}

// ownGPU is a machine of which one GPU matters.
type ownGPU struct {
	capacity.Source
	index int
}

func (o ownGPU) Inventory(ctx context.Context) (capacity.Inventory, error) {
	inventory, err := o.Source.Inventory(ctx)
	inventory.GPUs = slices.DeleteFunc(slices.Clone(inventory.GPUs), func(g capacity.GPU) bool { return g.Index != o.index })
	return inventory, err
}

// ended is how a worker of a crew ended in order, for the crew: an exit code of
// its own says so.
type ended process.ExitReason

func (e ended) Error() string { return "the worker ended: " + string(e) }

// The codes, beside 0 of a worker that was asked to leave.
const (
	exitIdle     = 10
	exitUnfit    = 11
	exitHopeless = 12
	exitBroken   = 13
)

func (e ended) code() int {
	switch process.ExitReason(e) {
	case process.Idle:
		return exitIdle
	case process.Unusable:
		return exitHopeless
	case process.GPUFailed:
		return exitBroken
	}
	return exitUnfit
}
