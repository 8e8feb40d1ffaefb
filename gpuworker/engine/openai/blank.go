package openai

import (
	"bytes"

	"rollout/gpuworker/engine"
	"rollout/gpuworker/engine/internal/rawjson"
)

// maxBlank is how much white space, and nothing else, an answer of a given
// shape may begin with. Models that lost the shape go on so until their tokens
// are used up; an answer is not waited for beyond this.
const maxBlank = 1 << 10

// blanks is how many bytes the text has if all are white space, else 0. It
// looks at what came since it was last called.
func (p *parts) blanks() int {
	if p.inked {
		return 0
	}
	p.inked = len(bytes.TrimSpace(p.text[p.looked:])) > 0
	p.looked = len(p.text)
	if p.inked {
		return 0
	}
	return p.looked
}

// lost reports whether an answer so far is nothing but the white space of a
// model that lost the shape that the request asks for.
func (k *call) lost() bool {
	n := k.parts.blanks()
	if n == 0 || n <= maxBlank && k.parts.finish != "length" {
		return false
	}
	return shapes(k.body)
}

// shapes reports whether a request says what shape its answer must have.
func shapes(body []byte) bool {
	found := false
	err := rawjson.Members(body, func(name, v []byte) error {
		switch string(name) {
		case "response_format": // {"type":"json_object"} and others
			free := !rawjson.IsObject(v)
			if !free {
				err := rawjson.Members(v, func(name, v []byte) error {
					free = free || string(name) == "type" && string(v) == `"text"`
					return nil
				})
				free = free || err != nil
			}
			found = found || !free
		case "structured_outputs", "guided_json", "guided_regex", "guided_choice", "guided_grammar", // vLLM
			"json_schema", "regex", "ebnf", "grammar": // SGLang, llama.cpp
			found = found || !rawjson.IsNull(v)
		}
		return nil
	})
	return err == nil && found
}

// spent is what the answer has cost so far.
func (p *parts) spent() engine.Usage {
	if p.usage != (engine.Usage{}) {
		return p.usage
	}
	return engine.Usage{CompletionTokens: p.pieces}
}
