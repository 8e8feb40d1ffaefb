package worker

import (
	"context"
	"errors"

	"rollout/events"
	"rollout/shared/config"
	"rollout/shared/fault"
	"rollout/shared/host"
)

// ErrModelMismatch is in the chain of an executor's error if a run was begun with
// another model, or another revision of it, than the worker has. No worker like
// this one can go on with the run, so that it pauses instead of going round.
var ErrModelMismatch = errors.New("the run was begun with another model than this worker has")

// reportRunFault tells coordinate why an executor ended, if the run itself must wait
// for people: it has no model, or a training's rows can't be had or are not
// those that were planned. The latter are read by the executor, not by load.
func (w *Worker) reportRunFault(ctx context.Context, h *heldShard, why error) {
	switch {
	case errors.Is(why, ErrModelMismatch):
		w.tell(ctx, events.ModelMissing{Run: string(h.run), Shard: h.shard, Reason: why.Error()})
	case h.manifest.Kind == config.KindTrain:
		w.reportInputFault(ctx, h, why)
	}
}

// reportInputFault tells coordinate what is wrong with a run's input, if anything is.
func (w *Worker) reportInputFault(ctx context.Context, h *heldShard, why error) {
	switch {
	case fault.Is(why, fault.NotFound):
		w.tell(ctx, events.InputMissing{Run: string(h.run), Shard: h.shard, Reason: why.Error()})
	case fault.ClassOf(why) == fault.InputChanged:
		w.tell(ctx, events.InputChanged{Run: string(h.run), Shard: h.shard, Reason: why.Error()})
	}
}

func (w *Worker) tell(ctx context.Context, p events.Payload) {
	if err := w.Send(ctx, host.CoordinateQueue, p); err != nil {
		w.Log.WarnContext(ctx, "event not sent; the shard is found by reclaim", "error", err)
	}
}
