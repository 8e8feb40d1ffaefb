package fakellm

import (
	"fmt"
	"net/http"
	"strconv"
	"time"
)

// The methods and functions below are the handlers of faults. Each replaces the
// answer to a request; see Faults.

func (s *Server) die(http.ResponseWriter, *http.Request, *completion) { s.cfg.Exit(1) }

// freeze stops this and all other requests for good.
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

// tooLong answers with vLLM's message for a request over the context length.
// Current versions do not know the prompt's length: the tokenizer stops at the
// first token over what max_tokens leaves, so the message says that the prompt
// "contains at least" that many tokens. Older versions report the true length.
func (s *Server) tooLong(w http.ResponseWriter, _ *http.Request, q *completion) {
	limit, asked := s.cfg.Faults.ContextLimit, words(q.prompt)
	message := fmt.Sprintf("This model's maximum context length is %d tokens. ", limit)
	switch {
	case !s.cfg.Faults.ContextExact:
		least := max(limit-q.maxTokens, 0) + 1
		message += fmt.Sprintf("However, you requested %d output tokens and your prompt contains at least %d input tokens, "+
			"for a total of at least %d tokens. "+
			"Please reduce the length of the input prompt or the number of requested output tokens. "+
			"(parameter=input_tokens, value=%d)",
			q.maxTokens, least, q.maxTokens+least, least)
	case q.maxTokens == 0:
		message += fmt.Sprintf("However, your request has %d input tokens. Please reduce the length of the input messages.",
			asked)
	default:
		message += fmt.Sprintf("However, you requested %d tokens (%d in the messages, %d in the completion). "+
			"Please reduce the length of the messages or completion.",
			asked+q.maxTokens, asked, q.maxTokens)
	}
	writeError(w, http.StatusBadRequest, "BadRequestError", message)
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

// dropEarly breaks the connection with the panic that net/http documents for it.
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
	_, _ = w.Write(body) // the client may have left
}
