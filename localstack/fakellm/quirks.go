package fakellm

import (
	"strings"
	"sync"
)

// answerQuirks are what is odd about an answer that is one.
type answerQuirks struct{ badLogprobs, surrogates, separators bool }

// quirksOf says what is odd about the question's answer.
func (f Faults) quirksOf(q *completion) answerQuirks {
	has := func(pattern string) bool { return pattern != "" && strings.Contains(q.prompt, pattern) }
	return answerQuirks{badLogprobs: has(f.BadLogprobs), surrogates: has(f.Surrogates), separators: has(f.Separators)}
}

// answer answers the question, odd or not.
func (s *Server) answer(q *completion) answer {
	f := s.cfg.Faults
	q.quirks = f.quirksOf(q)
	if q.json && f.JSONSpaces != "" && strings.Contains(q.prompt, f.JSONSpaces) && s.spaced.increment(q.prompt, f.SpacesTimes) {
		return spaces(q)
	}
	if q.json && f.JSONStuck != "" && strings.Contains(q.prompt, f.JSONStuck) && s.spaced.increment(q.prompt, f.SpacesTimes) {
		return spaces(q, "{", "\n", `"answer":`)
	}
	return answerTo(q, s.cfg.Tokens)
}

// promptCounter counts how often something was said.
type promptCounter struct {
	mu    sync.Mutex
	count map[string]int
}

// increment counts one more, and reports whether there were fewer than so many
// before; 0 is no limit.
func (t *promptCounter) increment(what string, limit int) bool {
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
