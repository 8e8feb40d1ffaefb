package fakellm

import (
	"net/http"
	"strings"
	"time"
)

// Faults are the ways in which the server fails. A string is a pattern: the fault
// applies to prompts that contain it; an empty one never matches. A count is a
// number of completion requests; 0 is never. The flags of scripts/fakellm have
// the same names.
type Faults struct {
	// Refusals.
	ContextLimit  int           // 400 if the prompt's words and max_tokens together exceed it
	ContextExact  bool          // such a 400 reports the prompt's length, as older vLLM does; see tooLong
	Refuse        string        // 400
	OverloadEvery int           // every n-th request: 429 and 503 in turn, with Retry-After
	MinuteLimit   int           // 429 with Retry-After for each request beyond this many within any minute
	MinuteTokens  int           // likewise for each request beyond this many tokens within any minute
	LimitHeaders  bool          // answers state both limits, as OpenAI does
	RetryAfter    time.Duration // value of Retry-After; 1 s if 0
	RetryDate     bool          // Retry-After is a date, not a number of seconds
	ChatOnly      bool          // there is no /v1/completions

	NoMetrics bool // there is no /metrics

	// Silence.
	HangEarly   string        // no answer and no headers until the client leaves
	Hang        string        // 200 and headers, then nothing
	FreezeAfter int           // after this many requests all requests hang; /health stays 200
	HealthDelay time.Duration // time that /health takes for each running request

	// GatewayTimeout is when a gateway in front of the server gives up on a request of
	// which nothing has come: 504.
	GatewayTimeout time.Duration

	// Broken connections.
	DropEarly string // before the headers
	Drop      string // in the middle of the answer
	Die       string // the process exits with code 1
	DieAfter  int    // the process exits at the first request after this many

	// Invalid answers.
	Error      string // 500
	ErrorAfter int    // 500 for each request after this many
	Empty      string // 200 with {}
	NoChoices  string // 200 with an answer without choices
	Echo       string // 200 with the request itself

	// Valid answers with unusual content.
	BadLogprobs string // NaN and Infinity among log probabilities
	Surrogates  string // lone surrogates, as escapes
	Separators  string // U+2028, U+2029 and U+0085, raw
	JSONSpaces  string // in JSON mode, white space up to max_tokens (1,000 words if none)
	JSONStuck   string // in JSON mode, the start of an object, then white space as above
	SpacesTimes int    // only the first requests of a prompt get white space; 0 is all
}

// faultHandler is a fault: the requests that it applies to, and the handler that
// replaces the answer.
type faultHandler struct {
	matches func(q *completion) bool
	handle  func(w http.ResponseWriter, r *http.Request, q *completion)
}

// faultHandlers returns the configured faults in their order of precedence. The
// first one that matches a request handles it.
func (s *Server) faultHandlers() []faultHandler {
	f := s.cfg.Faults
	var configured []faultHandler
	for _, m := range []struct {
		matches func(*completion) bool // nil if not configured
		handle  func(http.ResponseWriter, *http.Request, *completion)
	}{
		{contains(f.Die), s.die},
		{after(f.DieAfter), s.die},
		{after(f.FreezeAfter), s.freeze},
		{every(f.OverloadEvery), s.overloaded},
		{s.beyondMinuteLimit(), s.throttled},
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
			configured = append(configured, m)
		}
	}
	return configured
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
