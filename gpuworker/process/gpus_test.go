package process

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"rollout/shared/capacity"
)

// ailing is a machine whose GPU falls ill at a time.
type ailing struct {
	ill  time.Time
	gpus int
	asks int
}

func (a *ailing) Inventory(context.Context) (capacity.Inventory, error) {
	a.asks++
	inv := capacity.Inventory{GPUs: make([]capacity.GPU, a.gpus)}
	for i := range inv.GPUs {
		if inv.GPUs[i].UUID = "GPU-1"; time.Now().After(a.ill) {
			inv.GPUs[i].DrainReason = "uncorrectable ECC errors"
		}
	}
	return inv, nil
}

func (a *ailing) Notices(context.Context) <-chan capacity.Notice { return nil }

func TestWorkerDrainsWhenItsGPUFallsIll(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		reasons := make(chan string, 1)
		m := &ailing{ill: time.Now().Add(time.Hour), gpus: 1}
		start := time.Now()
		go watchGPUs(t.Context(), m, slog.New(slog.DiscardHandler), func(r string) { reasons <- r })
		if got, want := <-reasons, "GPU GPU-1: uncorrectable ECC errors"; got != want {
			t.Errorf("drains because of %q, want %q", got, want)
		}
		if d := time.Since(start); d < time.Hour || d > time.Hour+2*gpuLook {
			t.Errorf("drains after %s", d)
		}
	})
}

func TestMachineWithoutGPUsIsAskedOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := &ailing{}
		watchGPUs(t.Context(), m, slog.New(slog.DiscardHandler), func(string) { t.Error("drains") })
		if m.asks != 1 {
			t.Errorf("asked %d times", m.asks)
		}
	})
}
