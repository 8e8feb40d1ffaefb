package infer

import (
	"bytes"
	"slices"

	"rollout/shared/config"
)

// order returns the order in which the shard's items begin; nil is the order of
// the input. With shard.order = "prefix", prompts with a common prefix follow
// each other, so that a server with a prefix cache still has the prefix. Only
// the order of the requests changes: their bodies, the ids and the order of rows
// do not.
func (t *execution) order() []int {
	if t.shard.Manifest.Config.Shard.Order != config.OrderPrefix {
		return nil
	}
	type key struct {
		item          int
		tools, prompt []byte
	}
	keys := make([]key, len(t.shard.Lines))
	for i, l := range t.shard.Lines {
		keys[i].item = i
		if l.Original != nil {
			continue // a copy, which is never asked
		}
		if it, err := t.parse(l); err == nil {
			keys[i].tools, keys[i].prompt = it.Prompt()
		}
	}
	slices.SortStableFunc(keys, func(a, b key) int {
		if c := bytes.Compare(a.tools, b.tools); c != 0 {
			return c
		}
		return bytes.Compare(a.prompt, b.prompt)
	})
	order := make([]int, len(keys))
	for k, x := range keys {
		order[k] = x.item
	}
	return order
}
