package fakellm

import (
	"net/http"
	"strings"
	"time"
)

// Faults are the ways in which the server goes wrong. Patterns are plain text
// that the prompt contains; an empty one never matches. Counts are of
// completions asked for; 0 is never.
type Faults struct {
	// Refusals.
	ContextLimit  int           // 400 if prompt, in words, and max_tokens are together more
	ContextExact  bool          // such a 400 names the prompt's true length, as older vLLM does; see tooLong
	Refuse        string        // 400
	OverloadEvery int           // every n-th request: 429 and 503 in turn, with Retry-After
	RetryAfter    time.Duration // of Retry-After; 1 s if 0
	RetryDate     bool          // Retry-After is a date, not a number of seconds
	ChatOnly      bool          // there is no /v1/completions

	// Silence.
	HangEarly   string        // no headers, nothing, until the client leaves
	Hang        string        // 200 and headers, then nothing
	FreezeAfter int           // at the first request after so many all requests stop for good; /health stays 200
	HealthDelay time.Duration // /health takes so long for each request that is running

	// Broken connections.
	DropEarly string // before the headers
	Drop      string // in the middle of the answer
	Die       string // the process exits with code 1
	DieAfter  int    // the process exits at the first request after so many

	// What is no answer.
	Error      string // 500
	ErrorAfter int    // 500 for each request after so many
	Empty      string // 200 with {}
	NoChoices  string // 200 with an answer that lacks the choices
	Echo       string // 200 with the request itself

	// Odd answers.
	BadLogprobs string // NaN and Infinity among log probabilities
	Surrogates  string // lone surrogates, as escapes
	Separators  string // U+2028, U+2029 and U+0085, raw
	JSONSpaces  string // in JSON mode, white space up to max_tokens (1,000 words if none)
	JSONStuck   string // in JSON mode, the begin of an object, then white space as before
	SpacesTimes int    // white space for the first so many requests of a prompt only; 0 is all
}

// faultHandler is one fault: what it applies to, and what is done instead of
// answering.
type faultHandler struct {
	matches func(q *completion) bool
	handle  func(w http.ResponseWriter, r *http.Request, q *completion)
}

// faultHandlers lists the faults that are set, in the order in which they are
// tried; the first that hits counts.
func (s *Server) faultHandlers() []faultHandler {
	f := s.cfg.Faults
	var set []faultHandler
	for _, m := range []struct {
		matches func(*completion) bool // nil if not set
		handle  func(http.ResponseWriter, *http.Request, *completion)
	}{
		{contains(f.Die), s.die},
		{after(f.DieAfter), s.die},
		{after(f.FreezeAfter), s.freeze},
		{every(f.OverloadEvery), s.overloaded},
		{after(f.ErrorAfter), broken},
		{longer(f.ContextLimit), s.tooLong},
		{contains(f.Refuse), refuse},
		{contains(f.HangEarly), hangEarly},
		{contains(f.Hang), hang},
		{contains(f.DropEarly), dropEarly},
		{contains(f.Drop), drop},
		{contains(f.Error), broken},
		{contains(f.Empty), empty},
		{contains(f.NoChoices), noChoices},
		{contains(f.Echo), echo},
	} {
		if m.matches != nil {
			set = append(set, m)
		}
	}
	return set
}

func contains(pattern string) func(*completion) bool {
	if pattern == "" {
		return nil
	}
	return func(q *completion) bool { return strings.Contains(q.prompt, pattern) }
}

func every(n int) func(*completion) bool {
	if n <= 0 {
		return nil
	}
	return func(q *completion) bool { return q.nth%int64(n) == 0 }
}

func after(n int) func(*completion) bool {
	if n <= 0 {
		return nil
	}
	return func(q *completion) bool { return q.nth > int64(n) }
}

func longer(limit int) func(*completion) bool {
	if limit <= 0 {
		return nil
	}
	return func(q *completion) bool { return max(words(q.prompt), 1)+q.maxTokens > limit }
}
