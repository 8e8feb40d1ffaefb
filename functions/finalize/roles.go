package finalize

import (
	"maps"

	"rollout/shared/core/run"
	"rollout/shared/core/shard"
	"rollout/shared/record"
)

// roleCounts returns the counts by role of a run that ended with the state s; nil
// for a run of one role.
func roleCounts(m record.Manifest, s run.State, t totals) (out []record.RoleCounts) {
	for n := range s.Roles {
		r, err := m.Role(uint32(n))
		if err != nil {
			continue // the plan has no shard of it
		}
		var c shard.Counts
		switch {
		case n == 0: // what is not of another role
			c = t.counts
			c.ByClass = maps.Clone(c.ByClass)
			for i, other := range t.roles {
				without(&c, other, m.HasOutput(uint32(i)+1))
			}
		case n <= len(t.roles):
			c = t.roles[n-1]
		}
		out = append(out, r.Counted(s.Roles[n].RolePlan, c))
	}
	return out
}

// without takes the counts of another role out of those of the run, which have its tokens, and
// its items if it has output.
func without(c *shard.Counts, other shard.Counts, output bool) {
	c.PromptTokens -= other.PromptTokens
	c.CompletionTokens -= other.CompletionTokens
	c.WastedTokens -= other.WastedTokens
	c.WastedEstimated -= other.WastedEstimated
	c.CachedTokens -= other.CachedTokens
	c.ReasoningTokens -= other.ReasoningTokens
	if !output {
		return
	}
	c.OK, c.Failed = c.OK-other.OK, c.Failed-other.Failed
	for class, n := range other.ByClass {
		if c.ByClass[class] -= n; c.ByClass[class] == 0 {
			delete(c.ByClass, class)
		}
	}
}
