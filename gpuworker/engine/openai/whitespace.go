package openai

import (
	"bytes"
	"unicode"
	"unicode/utf8"

	"rollout/gpuworker/engine"
	"rollout/gpuworker/engine/internal/rawjson"
)

// maxBlank is how much white space on end an answer of a given shape may have.
// Models that lost the shape, at its start or between any two of its parts, go
// on so until their tokens are used up, because white space fits every shape; an
// answer is not waited for beyond this.
const maxBlank = 1 << 10

// blanks is how many bytes of white space the text ends with, and whether there
// is nothing else. It looks at what came since it was last called.
func (p *parts) blanks() (n int, all bool) {
	fresh := p.text[p.looked:]
	p.looked = len(p.text)
	if inked := trimmedLen(fresh); inked > 0 {
		p.blank = len(fresh) - inked
	} else {
		p.blank += len(fresh)
	}
	return p.blank, p.blank == p.looked
}

// trimmedLen is how long the text is without the white space at its end.
func trimmedLen(text []byte) int {
	for i := len(text); i > 0; i-- {
		switch c := text[i-1]; {
		case c >= utf8.RuneSelf:
			return len(bytes.TrimRightFunc(text[:i], unicode.IsSpace))
		case c != ' ' && (c < '\t' || c > '\r'):
			return i
		}
	}
	return 0
}

// lost reports whether an answer so far ends in the white space of a model that
// lost the shape that the request asks for.
func (k *call) lost() bool {
	n, all := k.parts.blanks()
	switch k.parts.finish {
	case "": // it goes on
		return n > maxBlank && shapes(k.body)
	case "length":
		return n > 0 && (all || n > maxBlank) && shapes(k.body)
	}
	return false // it came to an end of its own
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
