package fakellm

import (
	"strings"
	"sync"
)

// answerQuirks is the unusual content of a valid answer.
type answerQuirks struct{ badLogprobs, surrogates, separators bool }

// quirksOf returns the unusual content of the answer to a request.
func (f Faults) quirksOf(q *completion) answerQuirks {
	has := func(pattern string) bool { return pattern != "" && strings.Contains(q.prompt, pattern) }
	return answerQuirks{badLogprobs: has(f.BadLogprobs), surrogates: has(f.Surrogates), separators: has(f.Separators)}
}

// answer builds the answer to a request, with its configured quirks.
func (s *Server) answer(q *completion) answer {
	f := s.cfg.Faults
	q.quirks = f.quirksOf(q)
	if q.json && f.JSONSpaces != "" && strings.Contains(q.prompt, f.JSONSpaces) &&
		s.spaced.increment(q.prompt, f.SpacesTimes) {
		return spaces(q)
	}
	if q.json && f.JSONStuck != "" && strings.Contains(q.prompt, f.JSONStuck) &&
		s.spaced.increment(q.prompt, f.SpacesTimes) {
		return spaces(q, "{", "\n", `"answer":`)
	}
	if s.cfg.Script != nil {
		if text, ok := s.cfg.Script(q.body); ok {
			return answer{finish: "stop", digest: q.digest(), asked: words(q.prompt), words: strings.SplitAfter(text, " ")}
		}
	}
	return answerTo(q, s.cfg.Tokens)
}

// promptCounter counts how often each prompt has come. It is safe for concurrent
// use.
type promptCounter struct {
	mu    sync.Mutex
	count map[string]int
}

// increment counts the prompt and reports whether its count is within the limit.
// A limit of 0 is always met.
func (t *promptCounter) increment(prompt string, limit int) bool {
	if limit == 0 {
		return true
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.count == nil {
		t.count = map[string]int{}
	}
	t.count[prompt]++
	return t.count[prompt] <= limit
}
