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

// noGPU is the --gpu of a worker without a GPU of its own.
const noGPU = -1

// maxFailing is how long a worker may keep failing on a rented machine.
const maxFailing = 20 * time.Minute

// runPerGPU runs a worker process for each of the GPUs until all have ended. It
// returns the exit reason of the last one; see exitReasonOf.
func (f flags) runPerGPU(ctx context.Context, s *workplace) (process.ExitReason, error) {
	if f.metrics != "" && len(f.gpus) > 1 {
		return "", &fault.Error{Kind: fault.Invalid,
			Err:    errors.New("--metrics is one address, but --gpus starts several workers"),
			Remedy: "leave one of them out"}
	}
	for i, gpu := range f.gpus {
		if gpu < 0 || slices.Contains(f.gpus[:i], gpu) {
			return "", fault.New(fault.Invalid, "--gpus: %d is negative or is listed twice", gpu)
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
	limit := time.Duration(0) // forever
	if s.rented(ctx) {
		limit = maxFailing
	}
	var all sync.WaitGroup
	codes := make(chan int, len(f.gpus)) // in the order of their ends
	for _, gpu := range f.gpus {
		n := strconv.Itoa(gpu)
		w := supervise.Worker{Command: append([]string{self}, append(slices.Clone(os.Args[1:]), "--gpu", n)...),
			Env: []string{"CUDA_VISIBLE_DEVICES=" + n}, Log: s.ports.Log.With("gpu", gpu), MaxFailing: limit,
			FinalCodes: []int{0, exitIdle, exitUnfit, exitHopeless, exitBroken}}
		all.Go(func() { codes <- w.Run(ctx, asked.Done()) })
	}
	all.Wait()
	close(codes)
	end, err := s.exitReasonOf(ctx, codes)
	if err == nil && asked.Err() != nil {
		return process.Requested, nil
	}
	return end, err
}

// exitReasonOf returns the exit reason of a machine whose workers had these exit
// codes, in the order of their ends. The last one counts. But one worker that could
// work shows that the machine is usable.
func (s *workplace) exitReasonOf(ctx context.Context, codes <-chan int) (process.ExitReason, error) {
	end := process.Requested
	anyWorked := false
	for code := range codes {
		anyWorked = anyWorked || code == exitIdle || code == exitUnfit
		switch code {
		case supervise.ExitUsage:
			return "", fault.New(fault.Invalid, "a worker's arguments or config are wrong; see its messages above")
		case supervise.ExitDamaged:
			return "", fault.New(fault.Corrupt, "a worker found the state damaged; see its messages above")
		case 0:
		case exitIdle:
			end = process.Idle
		case exitUnfit:
			end = process.MachineLost
		case exitHopeless:
			end = process.Unusable
		case exitBroken:
			end = process.GPUFailed
		default: // another machine would not do better until the cause is fixed
			s.ports.Log.ErrorContext(ctx, "a worker keeps failing and is given up; see its messages above", "code", code)
			end = process.Unusable
		}
	}
	if anyWorked {
		switch end {
		case process.Unusable:
			end = process.Idle
		case process.GPUFailed:
			end = process.MachineLost
		}
	}
	return end, nil
}

// engineOf returns the server of one GPU's worker: the one at the GPU's place in the
// list, or the only one.
func engineOf(servers []string, gpus []int, gpu int) ([]string, error) {
	at := slices.Index(gpus, gpu)
	switch {
	case len(servers) <= 1:
		return servers, nil
	case len(servers) == len(gpus) && at >= 0:
		return servers[at : at+1], nil
	}
	return nil, &fault.Error{Kind: fault.Invalid,
		Err:    fmt.Errorf("there are %d engines for %d GPUs", len(servers), len(gpus)),
		Remedy: "name one --engine for each of --gpus, in the same order"}
}

// ownGPU is a machine whose inventory has only the GPU with the index.
type ownGPU struct {
	capacity.Source
	index int
}

func (o ownGPU) Inventory(ctx context.Context) (capacity.Inventory, error) {
	inventory, err := o.Source.Inventory(ctx)
	isOther := func(g capacity.GPU) bool { return g.Index != o.index }
	inventory.GPUs = slices.DeleteFunc(slices.Clone(inventory.GPUs), isOther)
	return inventory, err
}

// ended is the error with which a worker of --gpus reports its exit reason to the
// supervising process. It becomes an exit code.
type ended process.ExitReason

func (e ended) Error() string { return "the worker ended: " + string(e) }

// The exit codes of these workers, beside 0 for one that was asked to drain.
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
