package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"rollout/gpuworker/process"
	"rollout/gpuworker/supervise"
	"rollout/shared/capacity"
	"rollout/shared/fault"
	"rollout/shared/figures"
)

// noGPU is the --gpu of a worker without a GPU of its own.
const noGPU = -1

// maxFailing is how long a worker may keep failing on a rented machine.
const maxFailing = 20 * time.Minute

// groupsOf divides the GPUs among the servers, each of which uses the same number of them
// together. It is Invalid if one is listed twice, or some are left over.
func groupsOf(gpus []int, perServer int) ([][]int, error) {
	for i, gpu := range gpus {
		if gpu < 0 || slices.Contains(gpus[:i], gpu) {
			return nil, fault.New(fault.Invalid, "--gpus: %d is negative or is listed twice", gpu)
		}
	}
	if perServer < 1 || len(gpus)%perServer != 0 {
		return nil, &fault.Error{Kind: fault.Invalid,
			Err:    fmt.Errorf("%d GPUs can't be divided among servers of %d each", len(gpus), perServer),
			Remedy: "list the GPUs of all servers in --gpus, and how many each uses as --gpus-per-server"}
	}
	return slices.Collect(slices.Chunk(gpus, perServer)), nil
}

// runPerServer runs a worker process for each server, with the GPUs of that server, until
// all have ended. It returns the exit reason of the last one; see exitReasonOf.
func (f flags) runPerServer(ctx context.Context, s *workplace) (process.ExitReason, error) {
	groups, err := groupsOf(f.gpus, f.perServer)
	if err != nil {
		return "", err
	}
	if f.metrics != "" && len(groups) > 1 {
		return "", &fault.Error{Kind: fault.Invalid,
			Err:    errors.New("--metrics is one address, but --gpus starts several workers"),
			Remedy: "leave one of them out"}
	}
	for _, own := range groups {
		if _, _, err := engineOf(s.deployment.Engine.WithURLs(f.engine).Servers(), groups, own[0]); err != nil {
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
	codes := make(chan int, len(groups)) // in the order of their ends
	for _, own := range groups {
		first, names := strconv.Itoa(own[0]), strings.Trim(strings.ReplaceAll(fmt.Sprint(own), " ", ","), "[]")
		w := supervise.Worker{Command: append([]string{self}, append(slices.Clone(os.Args[1:]), "--gpu", first)...),
			Env: []string{"CUDA_VISIBLE_DEVICES=" + names}, Log: s.ports.Log.With("gpu", names), MaxFailing: limit,
			FinalCodes: []int{0, exitIdle, exitUnfit, exitHopeless, exitBroken, exitRefused}}
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
		case exitRefused:
			return "", fault.New(fault.Denied, "the installation refuses this machine's workers; see their messages above")
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

// engineOf returns the server of one worker, and its GPUs, of which the first is given:
// the server at their place in the list, or the only one.
func engineOf(servers []string, groups [][]int, gpu int) (own []string, gpus []int, err error) {
	at := slices.IndexFunc(groups, func(g []int) bool { return g[0] == gpu })
	if at >= 0 {
		gpus = groups[at]
	}
	switch {
	case len(servers) <= 1:
		return servers, gpus, nil
	case len(servers) == len(groups) && at >= 0:
		return servers[at : at+1], gpus, nil
	}
	return nil, nil, &fault.Error{Kind: fault.Invalid,
		Err:    fmt.Errorf("there are %d engines for %s", len(servers), figures.Of(len(groups), "worker")),
		Remedy: "name one --engine for each of --gpus, or for as many as --gpus-per-server says, in the same order"}
}

// ownGPUs is a machine whose inventory has only the GPUs with the indexes.
type ownGPUs struct {
	capacity.Source
	indexes []int
}

func (o ownGPUs) Inventory(ctx context.Context) (capacity.Inventory, error) {
	inventory, err := o.Source.Inventory(ctx)
	isOther := func(g capacity.GPU) bool { return !slices.Contains(o.indexes, g.Index) }
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
	exitRefused  = 4 // by the installation that it joined
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
