package server

import (
	"fmt"
	"net/http"
	"strings"
)

// Faults are the ways in which the server misbehaves. Patterns are plain text
// that the prompt contains; an empty one never matches.
type Faults struct {
	ContextLimit  int    // prompts of more words are too long: 400
	Refuse        string // 400
	Hang          string // 200, headers, then nothing until the client leaves
	NoChoices     string // 200 with {}
	Drop          string // the connection closes in the middle of the answer
	Die           string // the process exits with code 1
	DieAfter      int    // the process exits at the first request after so many
	OverloadEvery int    // every n-th request: 429 and 503 in turn, with Retry-After: 1
	ChatOnly      bool   // there is no /v1/completions
}

// misbehaviour is one fault: what it applies to, and what is done instead of
// answering.
type misbehaviour struct {
	hits func(q *question) bool
	act  func(w http.ResponseWriter, r *http.Request, q *question)
}

// misbehaviours lists the faults in the order in which they are tried; the
// first that hits counts.
func misbehaviours(cfg Config) []misbehaviour {
	f := cfg.Faults
	return []misbehaviour{
		{contains(f.Die), func(http.ResponseWriter, *http.Request, *question) { cfg.Exit(1) }},
		{after(f.DieAfter), func(http.ResponseWriter, *http.Request, *question) { cfg.Exit(1) }},
		{every(f.OverloadEvery), overloaded(f.OverloadEvery)},
		{longer(f.ContextLimit), tooLong(f.ContextLimit)},
		{contains(f.Refuse), func(w http.ResponseWriter, _ *http.Request, _ *question) {
			writeError(w, http.StatusBadRequest, "BadRequestError", "the prompt is refused")
		}},
		{contains(f.Hang), hang},
		{contains(f.NoChoices), func(w http.ResponseWriter, _ *http.Request, _ *question) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write([]byte("{}")) // a client that is gone needs no answer
		}},
		{contains(f.Drop), drop},
	}
}

func contains(pattern string) func(*question) bool {
	return func(q *question) bool { return pattern != "" && strings.Contains(q.prompt, pattern) }
}

func every(n int) func(*question) bool {
	return func(q *question) bool { return n > 0 && q.nth%int64(n) == 0 }
}

func after(n int) func(*question) bool {
	return func(q *question) bool { return n > 0 && q.nth > int64(n) }
}

func longer(limit int) func(*question) bool {
	return func(q *question) bool { return limit > 0 && words(q.prompt) > limit }
}

func overloaded(n int) func(http.ResponseWriter, *http.Request, *question) {
	return func(w http.ResponseWriter, _ *http.Request, q *question) {
		w.Header().Set("Retry-After", "1")
		if q.nth/int64(n)%2 == 1 {
			writeError(w, http.StatusTooManyRequests, "RateLimitError", "too many requests")
		} else {
			writeError(w, http.StatusServiceUnavailable, "ServiceUnavailableError", "the server is overloaded")
		}
	}
}

// tooLong answers in vLLM's words.
func tooLong(limit int) func(http.ResponseWriter, *http.Request, *question) {
	return func(w http.ResponseWriter, _ *http.Request, q *question) {
		writeError(w, http.StatusBadRequest, "BadRequestError", fmt.Sprintf(
			"This model's maximum context length is %d tokens. However, your request has %d input tokens. Please reduce the length of the input messages.",
			limit, words(q.prompt)))
	}
}

func hang(w http.ResponseWriter, r *http.Request, _ *question) {
	w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	flush(w)
	<-r.Context().Done()
}

// drop sends half an answer, then breaks the connection. (The panic is
// net/http's documented way to do so.)
func drop(w http.ResponseWriter, _ *http.Request, q *question) {
	w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	a := answerTo(q, 2)
	for i := range len(a.words) / 2 {
		_, _ = w.Write(appendPiece(eventHead(q, a), q, a, i))
	}
	flush(w)
	panic(http.ErrAbortHandler)
}
