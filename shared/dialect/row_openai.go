package dialect

import (
	"strconv"

	"rollout/shared/core/identity"
)

// openAI writes a row of the output file of an OpenAI batch.
func (w *row) openAI(it *Item, m Model, r Result) {
	name := nameOf(r.ID)
	w.text("id", "batch_req_"+name)
	w.id("custom_id", it.rawID, r.ID)
	w.open("response", '{')
	w.int("status_code", 200)
	w.text("request_id", "req_"+name)
	w.open("body", '{')
	if !it.Endpoint.Samples() { // the answer as the server sent it
		w.rest(r.first().Rest.Body, func(string) bool { return false })
		w.end('}')
		w.end('}')
		w.null("error")
		return
	}
	w.text("id", completionName(it.Endpoint, name))
	if it.Endpoint == Chat {
		w.text("object", "chat.completion")
	} else {
		w.text("object", "text_completion")
	}
	w.int("created", r.GeneratedAt.Unix())
	w.text("model", m.URI)
	w.open("choices", '[')
	for i, a := range r.Answers {
		w.choice(it.Endpoint, i, a)
	}
	w.end(']')
	u := r.usage()
	rest := r.first().Rest
	w.open("usage", '{')
	w.tokens("prompt_tokens", u.PromptTokens, u.Unknown)
	w.tokens("completion_tokens", u.CompletionTokens, u.Unknown)
	w.tokens("total_tokens", u.PromptTokens+u.CompletionTokens, u.Unknown)
	w.rest(rest.Usage, isUsageMember)
	w.end('}')
	w.rest(rest.Body, isBodyMember)
	w.end('}')
	w.end('}')
	w.null("error")
}

// choice writes one answer. The content of a chat answer that has no text but calls
// tools, refuses or the like is null.
func (w *row) choice(e Endpoint, index int, a Answer) {
	w.open("", '{')
	w.int("index", int64(index))
	if e == Chat {
		w.open("message", '{')
		w.text("role", "assistant")
		if a.Text == "" && (len(a.ToolCalls) > 0 || len(a.Rest.Message) > 0) {
			w.null("content")
		} else {
			w.text("content", a.Text)
		}
		if a.Reasoning != "" {
			w.text("reasoning_content", a.Reasoning)
		}
		if a.Reasoning != "" && a.Rest.SaysReasoning {
			w.text("reasoning", a.Reasoning)
		}
		w.foreign("tool_calls", a.ToolCalls)
		w.rest(a.Rest.Message, isMessageMember)
		w.end('}')
	} else {
		w.text("text", a.Text)
	}
	if !w.foreign("logprobs", a.Logprobs) {
		w.null("logprobs")
	}
	w.textOrNull("finish_reason", a.FinishReason)
	w.clamped("max_tokens_clamped", a)
	w.rest(a.Rest.Choice, isChoiceMember)
	w.end('}')
}

func completionName(e Endpoint, name string) string {
	if e == Chat {
		return "chatcmpl-" + name
	}
	return "cmpl-" + name
}

// nameOf derives a name from the line's own id, for the further ids in rows. It does not
// depend on the run.
func nameOf(id string) string {
	c := identity.Content([]byte(id))
	return c.String()[:32]
}

// failureName is nameOf for failures, several of which may have the same id.
func failureName(f Failure) string {
	return nameOf(strconv.FormatUint(f.Place.Item, 10) + "\x00" + f.ID)
}
