package dialect

// empty reports whether the server sent nothing else.
func (r Rest) empty() bool {
	return len(r.Message) == 0 && len(r.Choice) == 0 && len(r.Usage) == 0 && len(r.Body) == 0
}

// response writes what a plain row has no member for, in the server's own shape. It
// writes nothing if the server sent nothing else.
func (w *row) response(r Rest) {
	if r.empty() {
		return
	}
	w.open("response", '{')
	if len(r.Message) > 0 || len(r.Choice) > 0 {
		w.open("choices", '[')
		w.open("", '{')
		if len(r.Message) > 0 {
			w.open("message", '{')
			w.rest(r.Message, isMessageMember)
			w.end('}')
		}
		w.rest(r.Choice, isChoiceMember)
		w.end('}')
		w.end(']')
	}
	if len(r.Usage) > 0 {
		w.open("usage", '{')
		w.rest(r.Usage, isUsageMember)
		w.end('}')
	}
	w.rest(r.Body, isBodyMember)
	w.end('}')
}

// The members that rows write themselves, at each place of an answer.

func isMessageMember(name string) bool {
	switch name {
	case "role", "content", "reasoning_content", "reasoning", "tool_calls":
		return true
	}
	return false
}

func isChoiceMember(name string) bool {
	switch name {
	case "index", "message", "text", "logprobs", "finish_reason", "max_tokens_clamped":
		return true
	}
	return false
}

func isUsageMember(name string) bool {
	switch name {
	case "prompt_tokens", "completion_tokens", "total_tokens":
		return true
	}
	return false
}

func isBodyMember(name string) bool {
	switch name {
	case "id", "object", "created", "model", "choices", "usage":
		return true
	}
	return false
}
