package process

import (
	"context"

	"rollout/gpuworker/executors/infer"
	"rollout/shared/host"
	"rollout/shared/observe"
)

// samples returns what tells the event stream of every item; nil, which costs
// nothing, if there is none.
func samples(ctx context.Context, p host.Ports) func(infer.Item) {
	if p.Watch.Events == nil {
		return nil
	}
	return func(it infer.Item) {
		p.Observe(ctx, observe.ItemDone{Run: it.Run, Shard: it.Shard, Item: it.Item, ID: it.ID, Class: it.Class})
	}
}
