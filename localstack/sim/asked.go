package sim

import (
	"context"
	"slices"
	"strings"

	"rollout/shared/core/identity"
	"rollout/shared/core/shard"
	"rollout/shared/record"
)

// checkClaims checks that no shard of a stage was claimed before all shards of the stages
// before it were done: a batch waits for the reflections of the last one.
func (c *stages) checkClaims(ctx context.Context) {
	first := map[int]int{} // the first shard of each stage
	for k := 0; k < len(c.files)-c.inputs; k++ {
		var e record.IndexEntry
		c.decode(c.object(ctx, record.IndexKey(c.id, k)), &e)
		first[k] = e.FirstShard
	}
	done, at := map[int]bool{}, 0 // all shards before at are done
	for _, h := range c.audit.history {
		if h.Run != c.id {
			continue
		}
		if h.State == shard.Done {
			for done[h.Shard] = true; done[at]; {
				at++
			}
			continue
		}
		for k := range len(first) {
			if begins := first[k]; begins <= h.Shard && at < begins {
				c.audit.breakf("shard %d of a stage that begins with %d was claimed when %d was not done", h.Shard, begins, at)
			}
		}
	}
}

// checkAsked checks that the model was asked nothing but what the stages ask, and nothing
// again that a committed result answers. A worker asks again what is answered to compare
// servers: what it knows itself or, behind the real client, what documents tell of.
func (c *stages) checkAsked(shards []plannedShard) {
	planned := map[string][]string{} // by request: the shards that ask it
	item := 0
	for _, f := range c.files {
		for _, l := range f.lines {
			for len(shards) > 0 && item >= shards[0].items.Hi {
				shards = shards[1:]
			}
			if body, ok := c.bodyOf(l, uint64(item)); ok && len(shards) > 0 {
				planned[string(body)] = append(planned[string(body)], identity.ShardKey(c.id, shards[0].number))
			}
			item++
		}
	}
	late := c.askedLate()
	if c.thefts {
		late += longestCheckpoint // a holder who is robbed learns it when it saves
	}
	c.spending.mu.Lock()
	defer c.spending.mu.Unlock()
	for _, a := range c.spending.asked {
		keys, ok := planned[a.body]
		if c.http != nil && strings.Contains(a.body, smallQuestion) {
			continue // a worker asks it to compare servers
		}
		if !ok {
			c.audit.breakf("%s asks what no stage asks: %s", a.worker, a.body)
			continue
		}
		open := slices.ContainsFunc(keys, func(key string) bool {
			at, isDone := c.audit.doneAt[key]
			return !isDone || a.at.Sub(at) <= late
		})
		if !open && !a.known && c.http == nil {
			at := c.audit.doneAt[keys[0]]
			c.audit.breakf("%s asks %s after it was committed: %s", a.worker, a.at.Sub(at), a.body)
		}
	}
}
