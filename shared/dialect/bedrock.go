package dialect

import "rollout/shared/jsonl"

// parseBedrock reads {"recordId", "modelInput"}, where modelInput is a request in the
// messages style with only text.
func (it *Item) parseBedrock(ms []jsonl.Member) error {
	for _, m := range ms {
		switch string(m.Name) {
		case "recordId":
		case "modelInput":
			it.key, it.Request = "modelInput", compact(m)
		default:
			it.extra = append(it.extra, m)
		}
	}
	if it.Request == nil {
		return lineError("give the request as modelInput", "the line has no modelInput")
	}
	var t translation
	it.modelInput(&t)
	return t.done(it)
}

func (it *Item) modelInput(t *translation) {
	const what = "modelInput"
	var system, messages []byte
	for _, m := range t.members(what, it.Request) {
		name := string(m.Name)
		switch name {
		case "anthropic_version":
		case "system":
			system = m.Value
		case "messages":
			messages = m.Value
		case "max_tokens", "temperature", "top_p", "top_k":
			t.number(what+"."+name, name, m.Value)
		case "stop_sequences":
			t.stops(what+".stop_sequences", m.Value)
		default:
			t.refuse(what, m)
		}
	}
	if t.err == nil && messages == nil {
		t.fail(lineError("give the chat as modelInput.messages", "modelInput has no messages"))
	}
	if system != nil {
		t.message("system", t.bedrockText(what+".system", system))
	}
	t.bedrockMessages(what+".messages", messages)
}

func (t *translation) bedrockMessages(what string, raw []byte) {
	if t.err == nil {
		t.fail(checkMessages(what, raw))
	}
	for i, e := range t.elements(what, raw) {
		var role, content []byte
		for _, m := range t.members(at(what, i), e) {
			switch string(m.Name) {
			case "role":
				role = m.Value
			case "content":
				content = m.Value
			default:
				t.refuse(at(what, i), m)
			}
		}
		if t.err != nil {
			return
		}
		if content == nil {
			t.fail(lineError("give its text as content", "%s has no content", at(what, i)))
			return
		}
		text := t.bedrockText(at(what, i)+".content", content)
		switch {
		case role != nil && is(role, "user"):
			t.message("user", text)
		case role != nil && is(role, "assistant"):
			t.message("assistant", text)
		default:
			t.fail(lineError("write user or assistant", "%s.role is neither user nor assistant", at(what, i)))
			return
		}
	}
}

// bedrockText reads a string, or an array of text parts. It ignores the cache_control of
// a part, which does not change the answer.
func (t *translation) bedrockText(what string, raw []byte) []byte {
	if raw[0] == '"' {
		return raw
	}
	var texts [][]byte
	for i, e := range t.elements(what, raw) {
		part := at(what, i)
		var text []byte
		for _, m := range t.members(part, e) {
			switch string(m.Name) {
			case "type":
				if !is(m.Value, "text") {
					t.fail(lineError("keep to text", "%s.type %s is not supported", part, clip(m.Value)))
				}
			case "text":
				text = m.Value
			case "cache_control":
			default:
				t.refuse(part, m)
			}
		}
		if texts = t.text(texts, part, text); t.err != nil {
			return nil
		}
	}
	if t.err == nil && texts == nil {
		t.fail(lineError("give it a text", "%s is empty", what))
	}
	return join(texts)
}

// text appends the text of a part, which must be a string.
func (t *translation) text(texts [][]byte, part string, text []byte) [][]byte {
	switch {
	case t.err != nil:
	case text == nil:
		t.fail(lineError("keep to text", "%s has no text", part))
	case text[0] != '"':
		t.fail(wrongType(part+".text", "a string", text))
	}
	return append(texts, text)
}
