package server

import (
	"strings"
	"sync"
)

// oddities are what is odd about an answer that is one.
type oddities struct{ badLogprobs, surrogates, separators bool }

// oddOf says what is odd about the question's answer.
func (f Faults) oddOf(q *question) oddities {
	has := func(pattern string) bool { return pattern != "" && strings.Contains(q.prompt, pattern) }
	return oddities{badLogprobs: has(f.BadLogprobs), surrogates: has(f.Surrogates), separators: has(f.Separators)}
}

// answer answers the question, odd or not.
func (s *Server) answer(q *question) answer {
	f := s.cfg.Faults
	q.odd = f.oddOf(q)
	if q.json && f.JSONSpaces != "" && strings.Contains(q.prompt, f.JSONSpaces) && s.spaced.again(q.prompt, f.SpacesTimes) {
		return spaces(q)
	}
	if q.json && f.JSONStuck != "" && strings.Contains(q.prompt, f.JSONStuck) && s.spaced.again(q.prompt, f.SpacesTimes) {
		return spaces(q, "{", "\n", `"answer":`)
	}
	return answerTo(q, s.cfg.Tokens)
}

// tally counts how often something was said.
type tally struct {
	mu    sync.Mutex
	count map[string]int
}

// again counts one more, and reports whether there were fewer than so many
// before; 0 is no limit.
func (t *tally) again(what string, limit int) bool {
	if limit == 0 {
		return true
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.count == nil {
		t.count = map[string]int{}
	}
	t.count[what]++
	return t.count[what] <= limit
}
