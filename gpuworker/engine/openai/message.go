package openai

import (
	"fmt"

	"rollout/gpuworker/engine/internal/rawjson"
)

// addMessage adds a chat's message, or a piece of it.
func (p *parts) addMessage(raw []byte, whole bool) error {
	if rawjson.IsNull(raw) {
		return nil
	}
	var reasoning []byte
	err := rawjson.Members(raw, func(name, v []byte) error {
		switch string(name) {
		case "role":
		case "content":
			return p.addContent(v)
		case "reasoning", "reasoning_content": // newer vLLM, hosted APIs; older vLLM, SGLang, llama.cpp
			if rawjson.IsString(v) {
				if len(v) > len(reasoning) { // some send both
					reasoning = v
				}
				if string(name) == "reasoning" && len(v) > len(`""`) {
					p.saysReasoning = true
				}
				return nil
			}
			return p.addRest(&p.inMessage, name, v)
		case "tool_calls":
			return p.addTools(v, whole)
		default:
			return p.addRest(&p.inMessage, name, v)
		}
		return nil
	})
	if err != nil {
		return err
	}
	return p.addText(&p.reasoning, reasoning)
}

// addContent adds the content of a message: a string, or an array of parts. Of these,
// texts are the answer and thoughts its reasoning (Mistral and others); other parts
// are kept as the message's member content_parts.
func (p *parts) addContent(v []byte) error {
	if !rawjson.IsArray(v) {
		if !rawjson.IsNull(v) && !rawjson.IsString(v) {
			return fmt.Errorf("%w: the content of its message is neither a text nor parts", errMalformed)
		}
		return p.addText(&p.text, v)
	}
	p.addsOther = true
	return rawjson.Elements(v, func(part []byte) error {
		if rawjson.IsString(part) {
			return p.addText(&p.text, part)
		}
		var kind string
		var text, thinking []byte
		err := rawjson.Members(part, func(name, v []byte) error {
			switch string(name) {
			case "type":
				kind = stringOr(v)
			case "text":
				text = v
			case "thinking", "reasoning":
				thinking = v
			}
			return nil
		})
		switch {
		case err != nil:
			return err
		case rawjson.IsString(thinking):
			return p.addText(&p.reasoning, thinking)
		case rawjson.IsArray(thinking): // of texts
			return p.addThoughts(thinking)
		case rawjson.IsString(text) && (kind == "thinking" || kind == "reasoning"):
			return p.addText(&p.reasoning, text)
		case rawjson.IsString(text):
			return p.addText(&p.text, text)
		}
		if err := p.takeBytes(len(part)); err != nil {
			return err
		}
		return p.inMessage.add([]byte("content_parts"), append(append([]byte{'['}, part...), ']'), maxDepth-1)
	})
}

// addThoughts adds an array of texts to the reasoning.
func (p *parts) addThoughts(list []byte) error {
	return rawjson.Elements(list, func(part []byte) error {
		if rawjson.IsString(part) {
			return p.addText(&p.reasoning, part)
		}
		return rawjson.Members(part, func(name, v []byte) error {
			if string(name) == "text" && rawjson.IsString(v) {
				return p.addText(&p.reasoning, v)
			}
			return nil
		})
	})
}
