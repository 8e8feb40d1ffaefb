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

func TestEveryGPUHasTheEngineOfItsPlace(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		servers []string
		gpus    []int
		gpu     int
		want    string
	}{
		"one each":              {[]string{"a", "b"}, []int{2, 3}, 3, "[b]"},
		"one for all":           {[]string{"mock"}, []int{0, 1}, 1, "[mock]"},
		"none named":            {nil, []int{0, 1}, 1, "[]"},
		"too few":               {[]string{"a", "b"}, []int{0, 1, 2}, 0, "error"},
		"too many":              {[]string{"a", "b"}, []int{0}, 0, "error"},
		"a GPU that is not its": {[]string{"a", "b"}, []int{0, 1}, 7, "error"},
	} {
		got, err := engineOf(c.servers, c.gpus, c.gpu)
		said := fmt.Sprint(got)
		if err != nil {
			said = "error"
		}
		if said != c.want || err != nil && !fault.Is(err, fault.Invalid) {
			t.Errorf("%s: %s, %v; want %s", name, said, err, c.want)
		}
	}
}

// gpus is a machine with four GPUs, of which the last must not be used.
type gpus struct{ capacity.Source }

func (gpus) Inventory(context.Context) (capacity.Inventory, error) {
	return capacity.Inventory{CPUs: 8, Instance: "i-1", GPUs: []capacity.GPU{{Index: 0}, {Index: 1}, {Index: 2}, {Index: 3, DrainReason: "it is broken"}}}, nil
}

func TestAWorkerOfOneGPUDoesNotCareForOthers(t *testing.T) {
	t.Parallel()
	for index, want := range map[int]string{0: "[0 ]", 3: "[3 it is broken]", 9: "[]"} {
		inventory, err := ownGPU{gpus{}, index}.Inventory(t.Context())
		got := "["
		for _, g := range inventory.GPUs {
			got += fmt.Sprint(g.Index, " ", g.DrainReason)
		}
		if got += "]"; err != nil || got != want || inventory.CPUs != 8 || inventory.Instance != "i-1" {
			t.Errorf("GPU %d: %+v, %v, want the GPUs %s", index, inventory, err, want)
		}
	}
}

func TestACrewTellsEndsByTheirCodes(t *testing.T) {
	t.Parallel()
	for end, want := range map[process.ExitReason]int{process.Idle: exitIdle, process.MachineLost: exitUnfit, process.Unusable: exitHopeless, process.GPUFailed: exitBroken} {
		if got := ended(end).code(); got != want {
			t.Errorf("%s: %d, want %d", end, got, want)
		}
	}
}

// One worker that could work says that its machine is worth another.
func TestACrewEndsAsItsWorkersDid(t *testing.T) {
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
		if got, err := s.endOf(t.Context(), codes); err != nil || got != c.want {
			t.Errorf("codes %v: %s, %v; want %s", c.codes, got, err, c.want)
		}
	}
}
