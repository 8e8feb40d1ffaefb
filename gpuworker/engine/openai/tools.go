package openai

import (
	"bytes"
	"fmt"
	"slices"

	"github.com/go-json-experiment/json/jsontext"

	"rollout/gpuworker/engine/internal/rawjson"
)

// maxToolCalls bounds the calls of one answer.
const maxToolCalls = 1024

// toolCall is a tool call, joined from its pieces.
type toolCall struct {
	index          int // -1 without one
	id, kind, name string
	function       bool // there is a function
	arguments      []byte
	hasArguments   bool
	nest           nesting // of the arguments
	inFunction     object  // further members of the function
	other          object  // further members of the call
}

// toolPiece is a tool call of a whole answer, or a piece of one.
type toolPiece struct {
	index          int // -1 without one
	id, kind, name string
	arguments      []byte // nil without any
	function       []byte
	raw            []byte
}

// addTools adds pieces of tool calls, or with whole set the calls of a whole answer.
func (p *parts) addTools(raw []byte, whole bool) error {
	if !rawjson.IsArray(raw) {
		return nil
	}
	p.addsOther = true
	if err := p.takeBytes(len(raw)); err != nil {
		return err
	}
	position := 0
	return rawjson.Elements(raw, func(e []byte) error {
		d, err := readToolPiece(e)
		if err != nil {
			return fmt.Errorf("%w: its tool calls", errMalformed)
		}
		var t *toolCall
		if !whole {
			t = p.callOf(d, position)
		}
		position++
		if t == nil {
			if len(p.tools) == maxToolCalls {
				return fmt.Errorf("%w: more than %d tool calls", errMalformed, maxToolCalls)
			}
			p.tools = append(p.tools, toolCall{index: d.index})
			t = &p.tools[len(p.tools)-1]
		}
		return t.add(d)
	})
}

// callOf returns the call that a piece continues, or nil if it begins a call.
//
// Most servers number their calls. Others leave the number out or send 0 for all
// (Gemini's endpoint, many proxies), and tell calls apart by their id, or send each
// call in one piece. Older vLLM sends a new id with every piece of one call, but the
// name only with the first.
func (p *parts) callOf(d toolPiece, position int) *toolCall {
	var t *toolCall
	for i := range p.tools { // the last one counts
		c := &p.tools[i]
		if d.index < 0 || c.index == d.index {
			t = c
		}
		if d.id != "" && c.id == d.id {
			return c
		}
	}
	switch {
	case t == nil:
		return nil
	case d.id != "" && t.id != "" && (d.name != "" || d.index < 0):
		return nil
	case d.name == "" || t.name == "":
		return t
	case d.name != t.name || d.index < 0 && position > 0:
		return nil
	case len(t.arguments) > 0 && t.nest.depth == 0 && len(d.arguments) > 0: // the call was whole
		return nil
	}
	return t
}

func readToolPiece(e []byte) (toolPiece, error) {
	d := toolPiece{index: -1, raw: e}
	err := rawjson.Members(e, func(name, v []byte) error {
		switch string(name) {
		case "index":
			if i, ok := asIndex(v); ok {
				d.index = i
			}
		case "id":
			d.id = stringOr(v)
		case "type":
			d.kind = stringOr(v)
		case "function":
			d.function = v
		}
		return nil
	})
	if err != nil || !rawjson.IsObject(d.function) {
		return d, err
	}
	return d, rawjson.Members(d.function, func(name, v []byte) error {
		switch string(name) {
		case "name":
			d.name = stringOr(v)
		case "arguments":
			switch {
			case rawjson.IsString(v):
				d.arguments, _ = rawjson.AppendText([]byte{}, v) // what is not a string is dropped
			case rawjson.IsObject(v): // from some servers
				d.arguments = bytes.Clone(v)
			}
		}
		return nil
	})
}

// add adds a piece. The first id, type and name count; arguments are concatenated.
func (t *toolCall) add(d toolPiece) error {
	setOnce(&t.id, d.id)
	setOnce(&t.kind, d.kind)
	setOnce(&t.name, d.name)
	if d.arguments != nil {
		t.arguments, t.hasArguments = append(t.arguments, d.arguments...), true
		t.nest.feed(d.arguments)
	}
	if rawjson.IsObject(d.function) {
		t.function = true
		err := rawjson.Members(d.function, func(name, v []byte) error {
			if string(name) == "name" || string(name) == "arguments" {
				return nil
			}
			return t.inFunction.add(name, v, 2)
		})
		if err != nil {
			return err
		}
	}
	return rawjson.Members(d.raw, func(name, v []byte) error {
		switch string(name) {
		case "index", "id", "type", "function":
			return nil
		}
		return t.other.add(name, v, 1)
	})
}

func setOnce(s *string, v string) {
	if *s == "" {
		*s = v
	}
}

// toolCalls renders the calls, the same whether they came whole or in pieces; nil
// without any. They are in the order of their numbers, if each has its own, else as
// they came.
func (p *parts) toolCalls() []byte {
	if len(p.tools) == 0 {
		return nil
	}
	slices.SortStableFunc(p.tools, func(a, b toolCall) int {
		if a.index < 0 || b.index < 0 {
			return 0
		}
		return a.index - b.index
	})
	out := []byte{'['}
	for i := range p.tools {
		if i > 0 {
			out = append(out, ',')
		}
		out = p.tools[i].append(out)
	}
	return append(out, ']')
}

func (t *toolCall) append(out []byte) []byte {
	out = append(out, '{')
	if t.id != "" {
		out = append(appendMember(out, "id", t.id), ',')
	}
	if t.kind == "" && t.function {
		t.kind = "function"
	}
	if t.kind != "" {
		out = append(appendMember(out, "type", t.kind), ',')
	}
	if t.function {
		out = appendMember(append(out, `"function":{`...), "name", t.name)
		if t.hasArguments {
			out = appendMember(append(out, ','), "arguments", string(t.arguments))
		}
		out = append(appendMembers(append(out, ','), &t.inFunction), '}', ',')
	}
	return append(appendMembers(out, &t.other), '}')
}

// appendMembers appends an object's members after a comma or a brace, and drops the
// comma without tool calls.
func appendMembers(out []byte, o *object) []byte {
	if more := o.json(); more != nil {
		return append(out, more[1:len(more)-1]...)
	}
	return bytes.TrimSuffix(out, []byte{','})
}

func appendMember(dst []byte, name, value string) []byte {
	dst = append(append(append(dst, '"'), name...), `":`...)
	dst, _ = jsontext.AppendQuote(dst, value) // invalid UTF-8 becomes U+FFFD
	return dst
}
