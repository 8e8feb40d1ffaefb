package openai

import (
	"bytes"
	"unicode"
	"unicode/utf8"

	"rollout/gpuworker/engine"
)

// maxBlank bounds consecutive white space in an answer whose shape the request
// sets. White space fits every shape, at the start and between any two parts. A
// model that has lost the shape may therefore send nothing else until its tokens
// are used up.
const maxBlank = 1 << 10

// trailingWhitespace returns how many bytes of white space the text ends with, and
// whether the text has nothing else. It looks only at the text added since the
// last call.
func (p *parts) trailingWhitespace() (n int, all bool) {
	fresh := p.text[p.scanned:]
	p.scanned = len(p.text)
	if trimmed := trimmedLen(fresh); trimmed > 0 {
		p.blank = len(fresh) - trimmed
	} else {
		p.blank += len(fresh)
	}
	return p.blank, p.blank == p.scanned
}

// trimmedLen returns the length of the text without the white space at its end.
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

// whitespaceOnly reports whether the model has lost the shape that the request sets,
// and sends only white space.
func (k *call) whitespaceOnly() bool {
	n, all := k.parts.trailingWhitespace()
	switch k.parts.finish {
	case "": // the answer continues
		return n > maxBlank && engine.SetsShape(k.body)
	case "length":
		return n > 0 && (all || n > maxBlank) && engine.SetsShape(k.body)
	}
	return false // the model ended the answer
}
