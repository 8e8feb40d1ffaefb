package process

import (
	"context"
	"log/slog"
	"time"

	"rollout/shared/capacity"
)

// gpuLook is how often the health of a machine's GPUs is looked at.
const gpuLook = 30 * time.Second

// watchGPUs calls drain when a GPU of the machine must not get new work. A
// machine without GPUs is not looked at again.
func watchGPUs(ctx context.Context, m capacity.Source, log *slog.Logger, drain func(reason string)) {
	tick := time.NewTicker(gpuLook)
	defer tick.Stop()
	for {
		inv, err := m.Inventory(ctx)
		switch {
		case err != nil && ctx.Err() == nil:
			log.WarnContext(ctx, "the machine's GPUs can't be looked at", "error", err)
		case err == nil && len(inv.GPUs) == 0:
			return
		}
		for _, g := range inv.GPUs {
			if g.DrainReason != "" {
				drain("GPU " + g.UUID + ": " + g.DrainReason)
				return
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}
