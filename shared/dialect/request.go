package dialect

import (
	"rollout/shared/config"
	"rollout/shared/core/identity"
)

// Buffers is memory in which requests are made. The zero value is ready to use.
type Buffers struct {
	Body    []byte // of the line and the run's params
	Applied []byte // the body with the settings
}

// Request is how an item is asked: the request for one of its answers, without the
// members with which a client says how it reads the answer, such as stream.
type Request struct {
	Endpoint Endpoint
	Path     string // replaces that of the endpoint; "" for none
	Body     []byte // in the memory of the Buffers
	// FitMaxTokens says that max_tokens is the run's default for raw prompts, which is
	// lowered where the prompt leaves less room.
	FitMaxTokens bool
}

// AppendRequest makes the request for decode 0, 1, … of an item whose Target has no
// error, in the memory of b. promptMaxTokens is the run's default for raw prompts: see
// PromptMaxTokens. The settings may be nil.
func (s *Settings) AppendRequest(b *Buffers, it *Item, m Model, c config.Sampling, promptMaxTokens int,
	id identity.ContentID, decode int) Request {
	e, _ := s.Target(it)
	r := Request{Endpoint: e, Path: s.Path(it)}
	if n := s.PromptMaxTokens(it, c, promptMaxTokens); n > 0 {
		c.MaxTokens, r.FitMaxTokens = &n, true
	}
	b.Body = it.Body(b.Body[:0], m.URI, c, id, decode)
	r.Body = b.Body
	if s == nil && !e.Samples() {
		s = &Settings{}
	}
	if s != nil {
		b.Applied = s.Apply(b.Applied[:0], it, e, b.Body)
		r.Body = b.Applied
	}
	return r
}

// PromptMaxTokens returns the run's default of max_tokens, if the item is a raw prompt for
// which nothing else sets one; else 0.
func (s *Settings) PromptMaxTokens(it *Item, c config.Sampling, runDefault int) int {
	if e, _ := s.Target(it); e != Completion || it.MaxTokens(c) > 0 || s.Sets("max_tokens") {
		return 0
	}
	return runDefault
}
