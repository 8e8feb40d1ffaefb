package coordinate

import (
	"context"

	"rollout/events"
	"rollout/shared/core/run"
	"rollout/shared/host"
	"rollout/shared/record"
)

// factsShards is after how many shards a part of a run's facts may be whole although it has
// few items: its prompts are large.
const factsShards = 256

// askForFacts asks finalize to write the parts of a run's facts that are whole, when a step has
// got so far that there may be another one. It is a hint: if it is lost, the next one or the
// run's end makes up for it.
func (c *Coordinator) askForFacts(ctx context.Context, m record.Manifest, before, next run.State) error {
	if !factsDue(m, before, next) {
		return nil
	}
	return c.Send(ctx, host.TaskQueue, events.Finalize{Run: string(m.Run)})
}

// factsDue reports whether the step from before to next may have made a part whole.
func factsDue(m record.Manifest, before, next run.State) bool {
	if !m.Config.Facts.Parquet || next.Phase == run.Finalizing || next.Phase.Ended() {
		return false // finalize writes the rest without a hint
	}
	items := m.Config.Facts.ItemsOfPart()
	ended := func(s run.State) uint64 { return uint64(s.Counts.OK+s.Counts.Failed) / items }
	return ended(next) > ended(before) || next.Done.Frontier()/factsShards > before.Done.Frontier()/factsShards
}
