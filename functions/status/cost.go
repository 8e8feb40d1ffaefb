package status

import (
	"maps"

	"rollout/shared/core/cost"
	"rollout/shared/core/shard"
	"rollout/shared/prices"
	"rollout/shared/record"
)

// setCost sets what the run has cost so far: its done shards, and the machines' time of
// those that living workers hold.
func (s *Status) setCost(p Progress) {
	counts := p.State.Counts
	machines := maps.Clone(counts.Machines)
	if !s.Phase.Ended() {
		machines.Add(heldMachines(p).Joined())
	}
	roles := make([]record.RoleCounts, len(s.Roles))
	for i, r := range s.Roles {
		roles[i] = r.RoleCounts
	}
	list := prices.Of(p.Deployment.Cloud.Provider)
	bill := cost.NewBill(p.Manifest.TokenDollars(p.Deployment, counts, roles), machines,
		p.State.Sent()-p.State.KeptShards, list)
	all := shard.Counts{OK: int(s.Items.Done), Failed: int(s.Items.Failed), PromptTokens: counts.PromptTokens,
		CompletionTokens: counts.CompletionTokens}
	s.CostUSD, s.Cost = bill.Total(), record.NewCost(bill, all, list)
}

// heldMachines returns the machines' time of the shards that are held and not done.
func heldMachines(p Progress) cost.Uses {
	var out cost.Uses
	for _, w := range p.Workers {
		for _, h := range w.Holds {
			if w.Alive && h.Run == p.Manifest.Run && !p.State.Done.Set.Has(h.Shard) && h.Machine != (cost.Use{}) {
				out.Add(cost.Uses{w.Kind: h.Machine})
			}
		}
	}
	return out
}
