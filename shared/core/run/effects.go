package run

import (
	"encoding/json"

	"rollout/shared/core/cost"
	"rollout/shared/core/interval"
	"rollout/shared/core/schedule"
)

// Effects are the effects of one step, in the order in which to perform them.
// Their JSON is short: neighbours that differ only in their range are written as
// one group with a set of ranges.
type Effects []Effect

// effectGroup is the JSON form of neighbouring effects.
type effectGroup struct {
	Act        EffectKind    `json:"act"`
	Ranges     *interval.Set `json:"ranges,omitempty"`
	Generation int           `json:"generation,omitempty"`
	Urgent     bool          `json:"urgent,omitempty"`
	Allowance  int64         `json:"allowance,omitempty"`
	MicroUSD   int64         `json:"allowance_micro_usd,omitempty"`
	Why        string        `json:"why,omitempty"`
	Refused    string        `json:"refused,omitempty"`
	// Pruned is that of the effect.
	Pruned schedule.Pruned `json:"pruned,omitempty"`
}

// MarshalJSON writes the effects as groups.
func (es Effects) MarshalJSON() ([]byte, error) {
	groups := []effectGroup{}
	for _, e := range es {
		g := effectGroup{Act: e.Kind, Generation: e.Generation, Urgent: e.Urgent, Allowance: e.Allowance.Tokens,
			MicroUSD: e.Allowance.MicroUSD, Why: e.Why, Refused: e.Refused}
		if e.Pruned != nil {
			g.Pruned = schedule.Pruned{*e.Pruned}
		}
		if e.Range != nil {
			s := interval.Of(*e.Range)
			g.Ranges = &s
			if n := len(groups); n > 0 && groups[n-1].takes(e) {
				groups[n-1].Ranges.AddRange(*e.Range)
				continue
			}
		}
		groups = append(groups, g)
	}
	return json.Marshal(groups)
}

func (g effectGroup) allowance() cost.Spend {
	return cost.Spend{Tokens: g.Allowance, MicroUSD: g.MicroUSD}
}

// takes reports whether e can join g as a further range.
func (g effectGroup) takes(e Effect) bool {
	if g.Ranges == nil || g.Act != e.Kind || g.Generation != e.Generation || g.Urgent != e.Urgent ||
		g.allowance() != e.Allowance || g.Why != e.Why {
		return false
	}
	rs := g.Ranges.Ranges()
	return len(rs) > 0 && rs[len(rs)-1].Hi < e.Range.Lo
}

// UnmarshalJSON reads what MarshalJSON writes.
func (es *Effects) UnmarshalJSON(b []byte) error {
	var groups []effectGroup
	if err := json.Unmarshal(b, &groups); err != nil {
		return err
	}
	var out Effects
	for _, g := range groups {
		if g.Ranges == nil {
			e := Effect{Kind: g.Act, Generation: g.Generation, Allowance: g.allowance(), Why: g.Why, Refused: g.Refused}
			if len(g.Pruned) > 0 {
				e.Pruned = &g.Pruned[0]
			}
			out = append(out, e)
			continue
		}
		for _, r := range g.Ranges.Ranges() {
			out = append(out, Effect{Kind: g.Act, Range: &r, Generation: g.Generation, Urgent: g.Urgent,
				Allowance: g.allowance(), Why: g.Why})
		}
	}
	*es = out
	return nil
}
