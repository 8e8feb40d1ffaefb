package record

import (
	"time"

	"rollout/shared/config"
	"rollout/shared/core/cost"
	"rollout/shared/core/shard"
)

// Cost is what a run cost, in US dollars, by line. All of a machine's time that a run
// claimed is in one of the lines Machines, Boot and Idle.
type Cost struct {
	Tokens    float64 `json:"tokens_usd"`    // of hosted models
	Machines  float64 `json:"machines_usd"`  // while they answered the run's requests
	Boot      float64 `json:"boot_usd"`      // until they were ready for its first one
	Idle      float64 `json:"idle_usd"`      // while they waited for one
	Functions float64 `json:"functions_usd"` // by count, as are the requests to stores
	Storage   float64 `json:"storage_usd"`
	// PerMillionItems and PerThousandTokens divide the sum; null without items, or tokens.
	PerMillionItems   *float64 `json:"per_million_items_usd"`
	PerThousandTokens *float64 `json:"per_1000_tokens_usd"`
	// BusyHours, BootHours and IdleHours are the time of machines.
	BusyHours float64 `json:"busy_hours"`
	BootHours float64 `json:"boot_hours"`
	IdleHours float64 `json:"idle_hours"`
	// ByMachine has them by type and class, the dearest first; of an ended run alone.
	ByMachine []MachineCost `json:"machines,omitempty"`
	// Prices says of when and where the list prices are; "" if none were used.
	Prices string `json:"prices,omitempty"`
}

// Budget is how much of one of a run's budgets is spent.
type Budget struct {
	Name  string  `json:"name"` // its key under [limits]: "tokens" or "dollars"
	Used  float64 `json:"used"`
	Limit float64 `json:"limit"`
}

// Budgets returns the budgets that the limits set, of which so much is spent; nil for none.
func Budgets(l config.Limits, tokens int64, dollars float64) (out []Budget) {
	if l.Tokens > 0 {
		out = append(out, Budget{"tokens", float64(tokens), float64(l.Tokens)})
	}
	if l.Dollars > 0 {
		out = append(out, Budget{"dollars", dollars, l.Dollars})
	}
	return out
}

// MachineCost is what machines of one kind cost a run.
type MachineCost struct {
	Type      string   `json:"type"`
	Class     string   `json:"class"`
	BusyHours float64  `json:"busy_hours"`
	BootHours float64  `json:"boot_hours"`
	IdleHours float64  `json:"idle_hours"`
	USD       *float64 `json:"usd"` // null if no price is known
}

// NewCost returns the lines of a bill of a run with those counts.
func NewCost(b cost.Bill, c shard.Counts, p cost.Prices) Cost {
	out := Cost{Tokens: b.Tokens, Machines: b.Machines, Boot: b.Boot, Idle: b.Idle, Functions: b.Functions,
		Storage: b.Storage}
	for _, k := range b.Kinds {
		m := MachineCost{Type: k.Type, Class: k.Class, BusyHours: hours(k.Busy), BootHours: hours(k.Boot),
			IdleHours: hours(k.Idle)}
		out.BusyHours, out.BootHours, out.IdleHours = out.BusyHours+m.BusyHours, out.BootHours+m.BootHours,
			out.IdleHours+m.IdleHours
		if usd := k.USD(); usd > 0 {
			m.USD = &usd
		}
		if k.Type != cost.AllKinds {
			out.ByMachine = append(out.ByMachine, m)
		}
	}
	out.PerMillionItems = ratio(b.Total(), float64(c.OK+c.Failed)/1e6)
	out.PerThousandTokens = ratio(b.Total(), float64(c.PromptTokens+c.CompletionTokens)/1000)
	if p.Date != "" {
		out.Prices = p.Date + ", " + p.Source
	}
	return out
}

func hours(micros int64) float64 { return (time.Duration(micros) * time.Microsecond).Hours() }

func ratio(x, by float64) *float64 {
	if by <= 0 {
		return nil
	}
	x /= by
	return &x
}

// TokenDollars returns what the tokens of a run cost: as the workers counted it when they were
// used, those included that led to no row. It is at least what the tokens of the answers cost at
// the prices that the engines that gave them have now: workers may have known no price for a
// part of the run. So it overstates the cost if a price is raised during a run. roles are the
// counts by role, or nothing in a run of one role, where c has the tokens.
func (m Manifest) TokenDollars(d config.Deployment, c shard.Counts, roles []RoleCounts) float64 {
	counted, all := float64(c.TokenNanoUSD)/1e9, 0.0
	if len(roles) == 0 {
		roles = []RoleCounts{{Pool: m.Pool, PromptTokens: c.PromptTokens, CompletionTokens: c.CompletionTokens}}
	}
	for _, r := range roles {
		engine := d.ForPool(r.Pool).Engine
		all += engine.Dollars(float64(r.PromptTokens), float64(r.CompletionTokens))
	}
	return max(all, counted)
}
