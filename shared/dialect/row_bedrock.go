package dialect

// bedrock writes {"recordId", "modelInput", "modelOutput"}, where modelOutput is a
// message. With several answers, which that format cannot hold, modelOutputs has all of
// them.
func (w *row) bedrock(it *Item, m Model, r Result) {
	w.id("recordId", it.rawID, r.ID)
	w.raw("modelInput", it.Request)
	u := r.usage()
	w.bedrockMessage("modelOutput", m, r.ID, r.first(), u)
	if len(r.Answers) < 2 {
		return
	}
	w.open("modelOutputs", '[')
	for _, a := range r.Answers {
		w.bedrockMessage("", m, r.ID, a, u)
	}
	w.end(']')
}

func (w *row) bedrockMessage(name string, m Model, id string, a Answer, u Usage) {
	w.open(name, '{')
	w.text("id", "msg_"+nameOf(id))
	w.text("type", "message")
	w.text("role", "assistant")
	w.text("model", m.URI)
	w.open("content", '[')
	if a.Reasoning != "" {
		w.open("", '{')
		w.text("type", "thinking")
		w.text("thinking", a.Reasoning)
		w.end('}')
	}
	w.open("", '{')
	w.text("type", "text")
	w.text("text", a.Text)
	w.end('}')
	w.end(']')
	w.textOrNull("stop_reason", bedrockReason(a.FinishReason))
	w.null("stop_sequence")
	w.open("usage", '{')
	w.tokens("input_tokens", u.PromptTokens, u.Unknown)
	w.tokens("output_tokens", a.Usage.CompletionTokens, a.Usage.Unknown)
	w.end('}')
	w.foreign("tool_calls", a.ToolCalls)
	w.foreign("logprobs", a.Logprobs)
	w.clamped("max_tokens_clamped", a)
	w.end('}')
}

func bedrockReason(finish string) string {
	switch finish {
	case "stop":
		return "end_turn"
	case "length":
		return "max_tokens"
	case "tool_calls":
		return "tool_use"
	}
	return finish
}
