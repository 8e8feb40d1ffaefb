package status

import (
	"maps"

	"rollout/shared/core/cost"
	"rollout/shared/core/health"
	"rollout/shared/core/shard"
	"rollout/shared/prices"
	"rollout/shared/record"
)

// setCost sets what the run has cost so far: its done shards, and what those have taken that
// living workers hold.
func (s *Status) setCost(p Progress) {
	counts := p.State.Counts
	machines := maps.Clone(counts.Machines)
	if !s.Phase.Ended() {
		held, tokens := heldCost(p)
		machines.Add(held.Joined())
		counts.TokenNanoUSD = cost.Sum(counts.TokenNanoUSD, tokens)
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

// setBudgets sets what is spent of the run's budgets.
func (s *Status) setBudgets(p Progress) {
	limits := p.Manifest.Config.Limits
	if limits.Tokens <= 0 && limits.Dollars <= 0 {
		return
	}
	spent := p.State.Spent()
	if s.Phase.Ended() {
		s.Budgets = record.Budgets(limits, spent.Tokens, s.CostUSD)
		return
	}
	machines, tokenNanoUSD := heldCost(p)
	spent.MicroUSD += cost.Micros(cost.Sum(tokenNanoUSD, machines.Sum().NanoUSD))
	for _, h := range held(p) {
		spent.Tokens += h.Tokens
	}
	s.Budgets = record.Budgets(limits, spent.Tokens, spent.USD())
}

// heldCost returns what the shards that are held and not done have taken of machines, and what
// their tokens cost, in billionths of a dollar.
func heldCost(p Progress) (machines cost.Uses, tokenNanoUSD int64) {
	for _, h := range held(p) {
		tokenNanoUSD = cost.Sum(tokenNanoUSD, h.TokenNanoUSD)
		if h.Machine != (cost.Use{}) {
			machines.Add(cost.Uses{h.kind: h.Machine})
		}
	}
	return machines, tokenNanoUSD
}

// heldShard is a shard with the kind of its holder's machine.
type heldShard struct {
	health.HeldShard
	kind string
}

// held returns the shards of the run that living workers hold, and that are not done.
func held(p Progress) (out []heldShard) {
	for _, w := range p.Workers {
		for _, h := range w.Holds {
			if w.Alive && h.Run == p.Manifest.Run && !p.State.Done.Set.Has(h.Shard) {
				out = append(out, heldShard{h, w.Kind})
			}
		}
	}
	return out
}
