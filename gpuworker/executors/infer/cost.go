package infer

import (
	"rollout/gpuworker/engine"
	"rollout/gpuworker/worker"
)

// waste counts what a request cost that was not answered.
func (a *answers) waste(err error) {
	u := engine.SpentOn(err)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.lost += u.PromptTokens + u.CompletionTokens
}

// cost is what the item took. An answered one counts its prompt once, as for
// one request with n answers; of one that was not answered, and of requests
// before the one that was, everything is wasted.
func (a *answers) cost() worker.Tokens {
	t := worker.Tokens{Wasted: a.lost}
	for _, g := range a.got {
		if a.err != nil {
			t.Wasted += g.Usage.PromptTokens + g.Usage.CompletionTokens
			continue
		}
		t.Completion += g.Usage.CompletionTokens
	}
	if a.err == nil {
		t.Prompt = a.got[0].Usage.PromptTokens
	}
	return t
}

// otherwise is the body of a decode with another seed, derived as the one of a
// further decode would be, and beyond all that an item may have: asked as
// before, a model that answered white space would do so again.
func (a *answers) otherwise(decode, failures int) []byte {
	return a.item.Body(nil, a.model.URI, a.shard.Manifest.Config.Sampling, a.id, decode+failures<<16)
}
