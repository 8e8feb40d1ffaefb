package fakellm

import (
	"fmt"
	"net/http"
	"strconv"
	"time"
)

func (s *Server) die(http.ResponseWriter, *http.Request, *completion) { s.cfg.Exit(1) }

// freeze stops this and all other requests.
func (s *Server) freeze(_ http.ResponseWriter, r *http.Request, _ *completion) {
	s.freezing.Do(func() { close(s.frozen) })
	<-r.Context().Done()
}

func (s *Server) overloaded(w http.ResponseWriter, _ *http.Request, q *completion) {
	wait := s.cfg.Faults.RetryAfter
	if wait == 0 {
		wait = time.Second
	}
	if s.cfg.Faults.RetryDate {
		w.Header().Set("Retry-After", time.Now().Add(wait).UTC().Format(http.TimeFormat))
	} else {
		w.Header().Set("Retry-After", strconv.FormatFloat(wait.Seconds(), 'f', -1, 64))
	}
	if q.nth/int64(s.cfg.Faults.OverloadEvery)%2 == 1 {
		writeError(w, http.StatusTooManyRequests, "RateLimitError", "too many requests")
	} else {
		writeError(w, http.StatusServiceUnavailable, "ServiceUnavailableError", "the server is overloaded")
	}
}

// tooLong answers in vLLM's words. Its present ones name a length that is made
// up: the tokenizer stops as soon as the prompt is too long for what max_tokens
// leaves, so that the prompt "contains at least" one token more than that, be it
// one or a million. Older ones tell the prompt's length.
func (s *Server) tooLong(w http.ResponseWriter, _ *http.Request, q *completion) {
	limit, asked := s.cfg.Faults.ContextLimit, words(q.prompt)
	says := fmt.Sprintf("This model's maximum context length is %d tokens. ", limit)
	switch {
	case !s.cfg.Faults.ContextExact:
		least := max(limit-q.maxTokens, 0) + 1
		says += fmt.Sprintf("However, you requested %d output tokens and your prompt contains at least %d input tokens, for a total of at least %d tokens. "+
			"Please reduce the length of the input prompt or the number of requested output tokens. (parameter=input_tokens, value=%d)",
			q.maxTokens, least, q.maxTokens+least, least)
	case q.maxTokens == 0:
		says += fmt.Sprintf("However, your request has %d input tokens. Please reduce the length of the input messages.", asked)
	default:
		says += fmt.Sprintf("However, you requested %d tokens (%d in the messages, %d in the completion). Please reduce the length of the messages or completion.",
			asked+q.maxTokens, asked, q.maxTokens)
	}
	writeError(w, http.StatusBadRequest, "BadRequestError", says)
}

func refuse(w http.ResponseWriter, _ *http.Request, _ *completion) {
	writeError(w, http.StatusBadRequest, "BadRequestError", "the prompt is refused")
}

func broken(w http.ResponseWriter, _ *http.Request, _ *completion) {
	writeError(w, http.StatusInternalServerError, "InternalServerError", "EngineCore encountered an issue")
}

func hangEarly(_ http.ResponseWriter, r *http.Request, _ *completion) { <-r.Context().Done() }

func hang(w http.ResponseWriter, r *http.Request, _ *completion) {
	w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	flush(w)
	<-r.Context().Done()
}

// dropEarly breaks the connection. (The panic is net/http's documented way to
// do so.)
func dropEarly(http.ResponseWriter, *http.Request, *completion) { panic(http.ErrAbortHandler) }

// drop sends half an answer, then breaks the connection.
func drop(w http.ResponseWriter, _ *http.Request, q *completion) {
	w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	a := answerTo(q, 2)
	for i := range len(a.words) / 2 {
		_, _ = w.Write(appendPiece(eventHead(q, a), q, a, i))
	}
	flush(w)
	panic(http.ErrAbortHandler)
}

func empty(w http.ResponseWriter, _ *http.Request, _ *completion) { writeJSON(w, []byte("{}")) }

func noChoices(w http.ResponseWriter, _ *http.Request, q *completion) {
	a := answerTo(q, 0)
	writeJSON(w, append(appendUsage(head(q, a, ""), a), '}'))
}

func echo(w http.ResponseWriter, _ *http.Request, q *completion) { writeJSON(w, q.body) }

func writeJSON(w http.ResponseWriter, body []byte) {
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(body) // a client that is gone needs no answer
}
