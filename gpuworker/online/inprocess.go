package online

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"time"

	"rollout/gpuworker/engine"
	"rollout/shared/fault"
	"rollout/shared/listen"
	"rollout/shared/onlinewire"
)

// Handler is the Target of an engine in this process that has a server of OpenAI's API.
type Handler struct{ http.Handler }

// Serve calls the handler. What a drain cuts off is not taken for an answer.
func (h Handler) Serve(w http.ResponseWriter, r Request) {
	q := r.HTTP.Clone(r.HTTP.Context())
	q.Body, q.ContentLength = io.NopCloser(bytes.NewReader(r.Body)), int64(len(r.Body))
	answer := &cutAnswer{ResponseWriter: w, slot: r.Slot}
	h.ServeHTTP(answer, q)
	if r.Slot.CutOff() && answer.stream && !bytes.Equal(answer.last, []byte(endOfStream)) {
		w.Header().Set(http.TrailerPrefix+onlinewire.Broken, onlinewire.Drained)
	}
}

// endOfStream is the last event of a stream that is complete.
const endOfStream = "data: [DONE]\n\n"

// cutAnswer is the writer of an answer that a drain may cut off. An answer that it cuts off
// before the first byte is refused, so that another worker gives it. A whole answer that is
// complete stays one.
type cutAnswer struct {
	http.ResponseWriter
	slot    Slot
	stream  bool // the answer is a stream, and has begun
	refused bool
	last    []byte // of the stream: its last bytes, as many as endOfStream has
}

// WriteHeader implements http.ResponseWriter.
func (c *cutAnswer) WriteHeader(status int) {
	stream := onlinewire.IsStream(c.Header())
	if c.slot.CutOff() && (stream || status >= http.StatusInternalServerError) {
		c.refused = true
		clear(c.Header())
		refuse(c.ResponseWriter, onlinewire.Elsewhere, http.StatusServiceUnavailable,
			fault.New(fault.Unavailable, "the worker drains"))
		return
	}
	c.stream = stream
	c.ResponseWriter.WriteHeader(status)
}

// Write implements io.Writer.
func (c *cutAnswer) Write(p []byte) (int, error) {
	if c.refused {
		return len(p), nil
	}
	if c.stream {
		c.last = append(c.last, p[max(0, len(p)-len(endOfStream)):]...)
		c.last = c.last[max(0, len(c.last)-len(endOfStream)):]
	}
	return c.ResponseWriter.Write(p)
}

// Unwrap returns the writer of the connection, for http.ResponseController.
func (c *cutAnswer) Unwrap() http.ResponseWriter { return c.ResponseWriter }

// Whole is the Target of an engine in this process that returns whole answers alone. A
// stream of it has one piece.
type Whole struct{ Engine engine.Engine }

// Serve asks the engine.
func (e Whole) Serve(w http.ResponseWriter, r Request) {
	endpoint, object := engine.Completion, "text_completion"
	switch r.Path {
	case "completions":
	case "chat/completions":
		endpoint, object = engine.Chat, "chat.completion"
	default:
		refuse(w, onlinewire.Failed, http.StatusBadRequest,
			fault.New(fault.Invalid, "the engine %s has no %s", r.Model, r.Path))
		return
	}
	a, err := e.Engine.Answer(r.HTTP.Context(), engine.Request{Endpoint: endpoint, Body: r.Body, Model: r.Model,
		MaxTokens: r.MaxTokens}, func() {})
	switch {
	case fault.Is(err, fault.Invalid):
		refuse(w, onlinewire.Failed, http.StatusBadRequest, err)
		return
	case err != nil:
		refuse(w, onlinewire.Elsewhere, http.StatusServiceUnavailable, err)
		return
	}
	write := func(object, part string, usage any) map[string]any {
		choice := map[string]any{"index": 0, "finish_reason": a.FinishReason, "logprobs": nil, "text": a.Text}
		if endpoint == engine.Chat {
			delete(choice, "text")
			choice[part] = map[string]any{"role": "assistant", "content": a.Text}
		}
		return map[string]any{"id": fmt.Sprintf("online-%x", time.Now().UnixNano()), "object": object,
			"created": time.Now().Unix(), "model": r.Model, "choices": []any{choice}, "usage": usage}
	}
	if !r.Stream {
		listen.WriteJSON(w, http.StatusOK, write(object, "message", map[string]int64{
			"prompt_tokens": a.Usage.PromptTokens, "completion_tokens": a.Usage.CompletionTokens,
			"total_tokens": a.Usage.PromptTokens + a.Usage.CompletionTokens}))
		return
	}
	if endpoint == engine.Chat {
		object += ".chunk"
	}
	writeEvents(w, write(object, "delta", nil))
}

// writeEvents answers with a stream of one event, and its end.
func writeEvents(w http.ResponseWriter, event map[string]any) {
	b, err := json.Marshal(event)
	if err != nil { // the event holds nothing that JSON can't
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(http.StatusOK)
	_, _ = fmt.Fprintf(w, "data: %s\n\n"+endOfStream, b) // the client may have left
}
