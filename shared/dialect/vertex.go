package dialect

import "rollout/shared/jsonl"

// parseVertex reads {"request": {"contents": …}} with only text, and an optional key as
// the line's own id.
func (it *Item) parseVertex(ms []jsonl.Member) error {
	for _, m := range ms {
		switch string(m.Name) {
		case "key":
		case "request":
			it.key, it.Request = "request", compact(m)
		default:
			it.extra = append(it.extra, m)
		}
	}
	if it.Request == nil {
		return lineError("give the request as request", "the line has no request")
	}
	var t translation
	it.vertexRequest(&t)
	return t.done(it)
}

// vertexRequest reads both spellings of proto3 JSON. It ignores labels, which only
// attribute costs.
func (it *Item) vertexRequest(t *translation) {
	const what = "request"
	var system, contents, generation []byte
	for _, m := range t.members(what, it.Request) {
		switch string(m.Name) {
		case "contents":
			contents = m.Value
		case "systemInstruction", "system_instruction":
			t.once(&system, m)
		case "generationConfig", "generation_config":
			t.once(&generation, m)
		case "labels":
		default:
			t.refuse(what, m)
		}
	}
	if t.err == nil && contents == nil {
		t.fail(lineError("give the chat as request.contents", "request has no contents"))
	}
	if system != nil {
		_, text := t.vertexContent(what+".systemInstruction", system)
		t.message("system", text)
	}
	t.vertexContents(what+".contents", contents)
	if generation != nil {
		it.generationConfig(t, generation)
	}
}

// once stores a member that may have one of two spellings.
func (t *translation) once(to *[]byte, m jsonl.Member) {
	if *to != nil {
		t.fail(lineError("keep one of them", "request.%s comes in two spellings", clip(m.Name)))
	}
	*to = m.Value
}

func (t *translation) vertexContents(what string, raw []byte) {
	if t.err == nil {
		t.fail(checkMessages(what, raw))
	}
	for i, e := range t.elements(what, raw) {
		role, text := t.vertexContent(at(what, i), e)
		switch {
		case t.err != nil:
			return
		case role == nil || is(role, "user"):
			t.message("user", text)
		case is(role, "model"):
			t.message("assistant", text)
		default:
			t.fail(lineError("write user or model", "%s.role is neither user nor model", at(what, i)))
			return
		}
	}
}

// vertexContent reads {"role", "parts": [{"text"}, …]}.
func (t *translation) vertexContent(what string, raw []byte) (role, text []byte) {
	var parts []byte
	for _, m := range t.members(what, raw) {
		switch string(m.Name) {
		case "role":
			role = m.Value
		case "parts":
			parts = m.Value
		default:
			t.refuse(what, m)
		}
	}
	if t.err == nil && parts == nil {
		t.fail(lineError("give its text as parts", "%s has no parts", what))
	}
	var texts [][]byte
	for i, e := range t.elements(what+".parts", parts) {
		part := at(what+".parts", i)
		var text []byte
		for _, m := range t.members(part, e) {
			if string(m.Name) != "text" {
				t.refuse(part, m)
			}
			text = m.Value
		}
		if texts = t.text(texts, part, text); t.err != nil {
			return nil, nil
		}
	}
	if t.err == nil && texts == nil {
		t.fail(lineError("give it a text", "%s.parts is empty", what))
	}
	return role, join(texts)
}

func (it *Item) generationConfig(t *translation, raw []byte) {
	const what = "request.generationConfig"
	for _, m := range t.members(what, raw) {
		field := what + "." + clip(m.Name)
		switch string(m.Name) {
		case "temperature":
			t.number(field, "temperature", m.Value)
		case "topP", "top_p":
			t.number(field, "top_p", m.Value)
		case "topK", "top_k":
			t.number(field, "top_k", m.Value)
		case "maxOutputTokens", "max_output_tokens":
			t.number(field, "max_tokens", m.Value)
		case "presencePenalty", "presence_penalty":
			t.number(field, "presence_penalty", m.Value)
		case "frequencyPenalty", "frequency_penalty":
			t.number(field, "frequency_penalty", m.Value)
		case "seed":
			t.number(field, "seed", m.Value)
		case "stopSequences", "stop_sequences":
			t.stops(field, m.Value)
		case "candidateCount", "candidate_count":
			n, err := answers(field, m.Value)
			if err == nil && n > 0 && it.N > 0 {
				err = lineError("keep one of them", "the request says candidateCount twice, in two spellings")
			}
			if err != nil {
				t.fail(err)
			}
			it.N = n
		case "responseMimeType", "response_mime_type":
			if !is(m.Value, "text/plain") {
				t.refuse(what, m)
			}
		default:
			t.refuse(what, m)
		}
	}
}
