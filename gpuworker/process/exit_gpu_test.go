package process

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"rollout/shared/capacity"
)

// failingMachine is a machine whose GPUs fail at a time.
type failingMachine struct {
	fails time.Time
	gpus  int
	asks  int
}

func (m *failingMachine) Inventory(context.Context) (capacity.Inventory, error) {
	m.asks++
	inv := capacity.Inventory{GPUs: make([]capacity.GPU, m.gpus)}
	for i := range inv.GPUs {
		if inv.GPUs[i].UUID = "GPU-1"; time.Now().After(m.fails) {
			inv.GPUs[i].DrainReason = "uncorrectable ECC errors"
		}
	}
	return inv, nil
}

func (m *failingMachine) Notices(context.Context) <-chan capacity.Notice { return nil }

func TestWorkerDrainsWhenGPUFails(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		reasons := make(chan string, 1)
		m := &failingMachine{fails: time.Now().Add(time.Hour), gpus: 1}
		start := time.Now()
		go watchGPUs(t.Context(), m, slog.New(slog.DiscardHandler), func(r string) { reasons <- r })
		if got, want := <-reasons, "GPU GPU-1: uncorrectable ECC errors"; got != want {
			t.Errorf("drains because of %q, want %q", got, want)
		}
		if d := time.Since(start); d < time.Hour || d > time.Hour+2*gpuCheckEvery {
			t.Errorf("drains after %s", d)
		}
	})
}

func TestMachineWithoutGPUsIsCheckedOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := &failingMachine{}
		watchGPUs(t.Context(), m, slog.New(slog.DiscardHandler), func(string) { t.Error("the worker drains") })
		if m.asks != 1 {
			t.Errorf("checked %d times, want once", m.asks)
		}
	})
}
