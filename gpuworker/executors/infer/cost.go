package infer

import (
	"rollout/gpuworker/worker"
	"rollout/shared/dialect"
)

// cost is what an answered item took: its prompt once, as for one request with
// n answers.
func (a *answers) cost() worker.Tokens {
	t := worker.Tokens{Prompt: a.got[0].Usage.PromptTokens}
	for _, g := range a.got {
		t.Completion += g.Usage.CompletionTokens
	}
	return t
}

// wasted gives up the answers that there are, and is what they took.
func (a *answers) wasted() int64 {
	n := int64(0)
	for k, g := range a.got {
		n += g.Usage.PromptTokens + g.Usage.CompletionTokens
		a.got[k] = dialect.Answer{}
	}
	return n
}

// otherwise is the body of a decode with another seed, derived as the one of a
// further decode would be, and beyond all that an item may have: asked as
// before, a model that answered white space would do so again.
func (a *answers) otherwise(decode, failures int) []byte {
	return a.item.Body(nil, a.model.URI, a.shard.Manifest.Config.Sampling, a.id, decode+failures<<16)
}
