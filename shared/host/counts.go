package host

import (
	"rollout/events"
	"rollout/shared/core/cost"
	"rollout/shared/core/shard"
)

// EventCounts returns the counts of a shard as events have them.
func EventCounts(c shard.Counts) events.Counts {
	out := events.Counts{OK: c.OK, Failed: c.Failed, ByClass: c.ByClass, PromptTokens: c.PromptTokens,
		CompletionTokens: c.CompletionTokens, WastedTokens: c.WastedTokens, WastedEstimated: c.WastedEstimated,
		Finish: c.Finish, UsageUnknown: c.UsageUnknown, Kept: c.Kept, KeptFailed: c.KeptFailed,
		TokenNanoUSD: c.TokenNanoUSD, CachedTokens: c.CachedTokens, ReasoningTokens: c.ReasoningTokens}
	if len(c.Machines) > 0 {
		out.Machines = make(map[string]events.MachineUse, len(c.Machines))
	}
	for kind, use := range c.Machines {
		out.Machines[kind] = events.MachineUse(use)
	}
	return out
}

// ShardCounts returns the counts of an event as those of a shard.
func ShardCounts(c events.Counts) shard.Counts {
	out := shard.Counts{OK: c.OK, Failed: c.Failed, ByClass: c.ByClass, PromptTokens: c.PromptTokens,
		CompletionTokens: c.CompletionTokens, WastedTokens: c.WastedTokens, WastedEstimated: c.WastedEstimated,
		Finish: c.Finish, UsageUnknown: c.UsageUnknown, Kept: c.Kept, KeptFailed: c.KeptFailed,
		TokenNanoUSD: c.TokenNanoUSD, CachedTokens: c.CachedTokens, ReasoningTokens: c.ReasoningTokens}
	if len(c.Machines) > 0 {
		out.Machines = make(cost.Uses, len(c.Machines))
	}
	for kind, use := range c.Machines {
		out.Machines[kind] = cost.Use(use)
	}
	return out
}
