package cli

import (
	"context"
	"fmt"
	"log/slog"
	"testing"

	"rollout/gpuworker/process"
	"rollout/shared/capacity"
	"rollout/shared/fault"
	"rollout/shared/host"
)

func TestEachWorkerHasItsServerAndItsGPUs(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		servers []string
		gpus    []int
		per     int
		gpu     int // the first of the worker's
		want    string
	}{
		"one server for each GPU":    {[]string{"a", "b"}, []int{2, 3}, 1, 3, "[b] [3]"},
		"one server for two GPUs":    {[]string{"a", "b"}, []int{0, 1, 2, 3}, 2, 2, "[b] [2 3]"},
		"one server over all GPUs":   {[]string{"a"}, []int{0, 1}, 2, 0, "[a] [0 1]"},
		"one server for all GPUs":    {[]string{"mock"}, []int{0, 1}, 1, 1, "[mock] [1]"},
		"without servers":            {nil, []int{0, 1}, 1, 1, "[] [1]"},
		"too few servers":            {[]string{"a", "b"}, []int{0, 1, 2}, 1, 0, "error"},
		"too many servers":           {[]string{"a", "b"}, []int{0}, 1, 0, "error"},
		"a server for each, not two": {[]string{"a", "b"}, []int{0, 1}, 2, 0, "error"},
		"unlisted GPU":               {[]string{"a", "b"}, []int{0, 1}, 1, 7, "error"},
		"a GPU that is left over":    {[]string{"a"}, []int{0, 1, 2}, 2, 0, "error"},
		"a GPU listed twice":         {[]string{"a"}, []int{0, 0}, 1, 0, "error"},
		"no GPU for a server":        {[]string{"a"}, []int{0}, 0, 0, "error"},
	} {
		var servers []string
		var gpus []int
		groups, err := groupsOf(c.gpus, c.per)
		if err == nil {
			servers, gpus, err = engineOf(c.servers, groups, c.gpu)
		}
		result := fmt.Sprint(servers, gpus)
		if err != nil {
			result = "error"
		}
		if result != c.want || err != nil && !fault.Is(err, fault.Invalid) {
			t.Errorf("%s: %s, %v; want %s", name, result, err, c.want)
		}
	}
}

// gpus is a machine with four GPUs. The last one has failed.
type gpus struct{ capacity.Source }

func (gpus) Inventory(context.Context) (capacity.Inventory, error) {
	return capacity.Inventory{CPUs: 8, Instance: "i-1",
		GPUs: []capacity.GPU{{Index: 0}, {Index: 1}, {Index: 2}, {Index: 3, DrainReason: "failed"}}}, nil
}

func TestInventoryOfWorkerHasOnlyItsGPU(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		own  []int
		want string
	}{{[]int{0}, "[0 ]"}, {[]int{2, 3}, "[2 3 failed]"}, {[]int{9}, "[]"}} {
		want := c.want
		inventory, err := ownGPUs{gpus{}, c.own}.Inventory(t.Context())
		got := "["
		for _, g := range inventory.GPUs {
			got += fmt.Sprint(g.Index, " ", g.DrainReason)
		}
		if got += "]"; err != nil || got != want || inventory.CPUs != 8 || inventory.Instance != "i-1" {
			t.Errorf("GPUs %d: %+v, %v, want the GPUs %s", c.own, inventory, err, want)
		}
	}
}

func TestExitReasonsHaveCodes(t *testing.T) {
	t.Parallel()
	for end, want := range map[process.ExitReason]int{
		process.Idle: exitIdle, process.MachineLost: exitUnfit, process.Unusable: exitHopeless, process.GPUFailed: exitBroken,
	} {
		if got := ended(end).code(); got != want {
			t.Errorf("%s: %d, want %d", end, got, want)
		}
	}
}

// TestExitReasonOfSeveralWorkers checks how the exit codes of a machine's workers
// combine. The machine is usable if at least one worker was.
func TestExitReasonOfSeveralWorkers(t *testing.T) {
	t.Parallel()
	s := &workplace{ports: host.Ports{Log: slog.New(slog.DiscardHandler)}}
	for _, c := range []struct {
		codes []int
		want  process.ExitReason
	}{
		{[]int{0, 0}, process.Requested},
		{[]int{exitIdle, exitIdle}, process.Idle},
		{[]int{exitIdle, exitUnfit}, process.MachineLost},
		{[]int{exitHopeless, exitHopeless}, process.Unusable},
		{[]int{exitIdle, exitHopeless}, process.Idle},
		{[]int{exitBroken}, process.GPUFailed},
		{[]int{exitBroken, exitBroken}, process.GPUFailed},
		{[]int{exitBroken, exitHopeless}, process.Unusable},
		{[]int{exitBroken, exitIdle}, process.Idle},
		{[]int{exitUnfit, exitBroken}, process.MachineLost},
		{[]int{1}, process.Unusable},
	} {
		codes := make(chan int, len(c.codes))
		for _, code := range c.codes {
			codes <- code
		}
		close(codes)
		if got, err := s.exitReasonOf(t.Context(), codes); err != nil || got != c.want {
			t.Errorf("codes %v: %s, %v; want %s", c.codes, got, err, c.want)
		}
	}
}
