package fakellm

import (
	"bytes"
	"fmt"
	"net/http"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// quoted encodes s as a JSON string.
func quoted(s string) []byte { return appendQuoted(nil, s) }

func appendQuoted(dst []byte, s string) []byte {
	dst, _ = jsontext.AppendQuote(dst, s) // invalid UTF-8 is written as U+FFFD
	return dst
}

// writeError answers with vLLM's nested error object.
func writeError(w http.ResponseWriter, status int, kind, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	fmt.Fprintf(w, `{"error":{"message":%s,"type":%s,"param":null,"code":%d}}`, quoted(message), quoted(kind), status)
}

// writeWhole writes the answer as one JSON object, when all its words are due.
func (s *Server) writeWhole(w http.ResponseWriter, r *http.Request, q *completion, a answer) {
	for range a.words {
		s.generationTokens.Add(1)
		if s.cfg.TokenLatency > 0 && !s.work(r, s.cfg.TokenLatency) {
			return
		}
	}
	text := strings.Join(a.words, "")
	out := append(head(q, a, ""), `"choices":[{"index":0,`...)
	if q.chat {
		out = append(a.appendText(append(out, `"message":{"role":"assistant","content":`...), text), '}')
	} else {
		out = a.appendText(append(out, `"text":`...), text)
	}
	out = a.appendLogprobs(out, q, 0, len(a.words))
	out = appendQuoted(append(out, `,"finish_reason":`...), a.finish)
	out = append(appendUsage(append(out, "}],"...), a), '}')
	writeJSON(w, out)
	q.finish = a.finish
}

// writeStream writes the answer as one event per word, at the configured pace, or
// all at once without a TokenLatency.
func (s *Server) writeStream(w http.ResponseWriter, r *http.Request, q *completion, a answer) {
	w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	event := eventHead(q, a)
	out := make([]byte, 0, (len(a.words)+3)*(len(event)+100))
	for i := range a.words {
		out = appendPiece(append(out, event...), q, a, i)
		s.generationTokens.Add(1)
		if s.cfg.TokenLatency > 0 {
			_, _ = w.Write(out)
			flush(w)
			out = out[:0]
			if !s.work(r, s.cfg.TokenLatency) {
				return
			}
		}
	}
	out = appendFinish(append(out, event...), q, a)
	if q.usage {
		out = append(appendUsage(append(append(out, event...), `"choices":[],`...), a), "}\n\n"...)
	}
	_, _ = w.Write(append(out, "data: [DONE]\n\n"...))
	q.finish = a.finish
}

func flush(w http.ResponseWriter) {
	_ = http.NewResponseController(w).Flush() // the request's context reports that the client left
}

// appendPiece appends the rest of the event of word i.
func appendPiece(out []byte, q *completion, a answer, i int) []byte {
	out = append(out, `"choices":[{"index":0,`...)
	switch {
	case !q.chat:
		out = a.appendText(append(out, `"text":`...), a.words[i])
	case i == 0:
		out = append(a.appendText(append(out, `"delta":{"role":"assistant","content":`...), a.words[i]), '}')
	default:
		out = append(a.appendText(append(out, `"delta":{"content":`...), a.words[i]), '}')
	}
	out = a.appendLogprobs(out, q, i, i+1)
	return append(out, ",\"finish_reason\":null}]}\n\n"...)
}

// appendFinish appends the rest of the event with the finish reason.
func appendFinish(out []byte, q *completion, a answer) []byte {
	if q.chat {
		out = append(out, `"choices":[{"index":0,"delta":{},"finish_reason":`...)
	} else {
		out = append(out, `"choices":[{"index":0,"text":"","finish_reason":`...)
	}
	return append(appendQuoted(out, a.finish), "}]}\n\n"...)
}

// eventHead is the start of every event of an answer.
func eventHead(q *completion, a answer) []byte {
	return append([]byte("data: "), head(q, a, ".chunk")...)
}

// head is the start of an answer's object, up to the choices.
func head(q *completion, a answer, chunk string) []byte {
	object := "text_completion"
	if q.chat {
		object = "chat.completion" + chunk
	}
	out := fmt.Appendf(nil, `{"id":"fake-%x","object":"%s","created":0,"model":`, a.digest[:8], object)
	return append(appendQuoted(out, q.servedModel), ',')
}

func appendUsage(out []byte, a answer) []byte {
	return fmt.Appendf(out, `"usage":{"prompt_tokens":%d,"completion_tokens":%d,"total_tokens":%d}`, a.asked,
		len(a.words), a.asked+len(a.words))
}

// appendText appends a text of the answer as a JSON string.
func (a *answer) appendText(out []byte, text string) []byte {
	if !a.surrogates {
		return appendQuoted(out, text)
	}
	return append(out, bytes.ReplaceAll(quoted(text), []byte(lone), []byte(`\udc00`))...)
}

// oddLogprobs are the non-numbers that Python's JSON writer emits.
var oddLogprobs = [...]string{"NaN", "-Infinity", "-0.5", "Infinity"}

func (a *answer) logprob(i int) string {
	if a.badLogprobs {
		return oddLogprobs[i%len(oddLogprobs)]
	}
	return "-0.5"
}

// appendLogprobs appends log probabilities of the words in [from, to) if the
// request asks for them.
func (a *answer) appendLogprobs(out []byte, q *completion, from, to int) []byte {
	if !q.logprobs {
		return out
	}
	if q.chat {
		out = append(out, `,"logprobs":{"content":[`...)
		for i := from; i < to; i++ {
			out = a.appendText(append(comma(out, i-from), `{"token":`...), a.words[i])
			out = fmt.Appendf(out, `,"logprob":%s,"bytes":null,"top_logprobs":[]}`, a.logprob(i))
		}
		return append(out, "]}"...)
	}
	out = append(out, `,"logprobs":{"tokens":[`...)
	for i := from; i < to; i++ {
		out = a.appendText(comma(out, i-from), a.words[i])
	}
	out = append(out, `],"token_logprobs":[`...)
	for i := from; i < to; i++ {
		out = append(comma(out, i-from), a.logprob(i)...)
	}
	return append(out, "]}"...)
}

func comma(out []byte, i int) []byte {
	if i == 0 {
		return out
	}
	return append(out, ',')
}
