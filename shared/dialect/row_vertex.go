package dialect

// vertex writes {"key", "status", "processed_time", "request", "response"}, with one
// candidate for each answer. The row of a line without a key has the item id as its key,
// as an error row has.
func (w *row) vertex(it *Item, m Model, r Result) {
	w.id("key", it.rawID, r.ID)
	w.text("status", "")
	w.time("processed_time", r.GeneratedAt)
	w.raw("request", it.Request)
	w.open("response", '{')
	w.open("candidates", '[')
	for i, a := range r.Answers {
		w.candidate(i, a)
	}
	w.end(']')
	w.text("modelVersion", m.URI)
	u := r.usage()
	w.open("usageMetadata", '{')
	w.tokens("promptTokenCount", u.PromptTokens, u.Unknown)
	w.tokens("candidatesTokenCount", u.CompletionTokens, u.Unknown)
	w.tokens("totalTokenCount", u.PromptTokens+u.CompletionTokens, u.Unknown)
	w.end('}')
	w.end('}')
}

func (w *row) candidate(index int, a Answer) {
	w.open("", '{')
	w.int("index", int64(index))
	w.open("content", '{')
	w.text("role", "model")
	w.open("parts", '[')
	if a.Reasoning != "" {
		w.open("", '{')
		w.text("text", a.Reasoning)
		w.raw("thought", []byte("true"))
		w.end('}')
	}
	w.open("", '{')
	w.text("text", a.Text)
	w.end('}')
	w.end(']')
	w.end('}')
	w.text("finishReason", vertexReason(a.FinishReason))
	w.foreign("toolCalls", a.ToolCalls)
	w.foreign("logprobs", a.Logprobs)
	w.clamped("maxTokensClamped", a)
	w.end('}')
}

func vertexReason(finish string) string {
	switch finish {
	case "stop":
		return "STOP"
	case "length":
		return "MAX_TOKENS"
	case "":
		return "FINISH_REASON_UNSPECIFIED"
	}
	return "OTHER"
}
