package infer

import (
	"bytes"
	"slices"

	"rollout/shared/config"
)

// order is the order in which the shard's items are begun; nil is that of the
// input. Ordered by prefix, prompts that begin alike follow each other, so that
// a server that caches prefixes finds them before it has forgotten them. Only
// the order of asking changes: requests, ids and the order of rows do not.
func (t *execution) order() []int {
	if t.shard.Manifest.Config.Shard.Order != config.OrderPrefix {
		return nil
	}
	type asked struct {
		item          int
		tools, prompt []byte
	}
	all := make([]asked, len(t.shard.Lines))
	for i, l := range t.shard.Lines {
		all[i].item = i
		if l.Original != nil {
			continue // never asked
		}
		if it, err := t.parse(l); err == nil {
			all[i].tools, all[i].prompt = it.Prompt()
		}
	}
	slices.SortStableFunc(all, func(a, b asked) int {
		if c := bytes.Compare(a.tools, b.tools); c != 0 {
			return c
		}
		return bytes.Compare(a.prompt, b.prompt)
	})
	order := make([]int, len(all))
	for k, a := range all {
		order[k] = a.item
	}
	return order
}
