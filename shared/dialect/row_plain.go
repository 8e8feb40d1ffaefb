package dialect

import (
	"encoding/hex"
	"unicode/utf8"

	"rollout/shared/core/identity"
)

// plain writes a row of the plain dialect. With several answers, completion is
// the first one's and completions holds them all.
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
			w.asides(a)
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
	w.asides(a)
	w.contentID("model_content_id", m.ID)
	w.blob(a.Text)
	u := r.usage()
	w.open("usage", '{')
	w.int("prompt_tokens", u.PromptTokens)
	w.int("completion_tokens", u.CompletionTokens)
	w.end('}')
	w.time("generated_at", r.GeneratedAt)
}

// blob names the bytes of a completion, as the row's reader will see them.
func (w *row) blob(text string) {
	if !utf8.ValidString(text) {
		text = string([]rune(text)) // what AppendString makes of it
	}
	w.contentID("completion_blob_id", identity.TextContent(text))
}

func (w *row) contentID(name string, id identity.ContentID) {
	w.b = append(appendName(w.b, name), '"')
	w.b = append(hex.AppendEncode(w.b, id[:]), '"', ',')
}

// asides writes what an answer has beside its text, where it has it.
func (w *row) asides(a Answer) {
	if a.Reasoning != "" {
		w.text("reasoning", a.Reasoning)
	}
	w.foreign("tool_calls", a.ToolCalls)
	w.foreign("logprobs", a.Logprobs)
	w.clamped("max_tokens_clamped", a)
}
