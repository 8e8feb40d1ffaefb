package dialect

import (
	"encoding/hex"
	"unicode/utf8"

	"rollout/shared/core/identity"
)

// plain writes a row of the plain dialect. With several answers, completion is the first
// and completions has all of them.
func (w *row) plain(it *Item, m Model, r Result) {
	a := r.first()
	w.id("id", it.rawID, r.ID)
	w.raw(it.key, it.Request)
	w.text("completion", a.Text)
	if len(r.Answers) > 1 {
		w.open("completions", '[')
		for _, a := range r.Answers {
			w.open("", '{')
			w.text("completion", a.Text)
			w.textOrNull("finish_reason", a.FinishReason)
			w.blob(a.Text)
			w.details(a)
			w.response(a.Rest)
			w.end('}')
		}
		w.end(']')
	}
	if len(m.Params) > 0 {
		w.raw("sampling_params", m.Params)
	} else {
		w.raw("sampling_params", []byte("{}"))
	}
	w.text("model_uri", m.URI)
	w.textOrNull("finish_reason", a.FinishReason)
	w.details(a)
	w.contentID("model_content_id", m.ID)
	w.blob(a.Text)
	u := r.usage()
	w.open("usage", '{')
	w.tokens("prompt_tokens", u.PromptTokens, u.Unknown)
	w.tokens("completion_tokens", u.CompletionTokens, u.Unknown)
	w.end('}')
	w.response(a.Rest)
	w.time("generated_at", r.GeneratedAt)
}

// blob writes the content id of a completion, as a reader of the row decodes it.
func (w *row) blob(text string) {
	if !utf8.ValidString(text) {
		text = string([]rune(text)) // as AppendString writes it
	}
	w.contentID("completion_blob_id", identity.TextContent(text))
}

func (w *row) contentID(name string, id identity.ContentID) {
	w.b = append(appendName(w.b, name), '"')
	w.b = append(hex.AppendEncode(w.b, id[:]), '"', ',')
}

// details writes what an answer has besides its text.
func (w *row) details(a Answer) {
	if a.Reasoning != "" {
		w.text("reasoning", a.Reasoning)
	}
	w.foreign("tool_calls", a.ToolCalls)
	w.foreign("logprobs", a.Logprobs)
	w.clamped("max_tokens_clamped", a)
}
