package openai

import (
	"fmt"

	"github.com/go-json-experiment/json/jsontext"
)

// maxToolCalls bounds the calls of one answer.
const maxToolCalls = 1024

// wireToolCall is a piece of a tool call.
type wireToolCall struct {
	Index    int     `json:"index"`
	ID       lenient `json:"id"`
	Type     lenient `json:"type"`
	Function struct {
		Name      lenient        `json:"name"`
		Arguments jsontext.Value `json:"arguments"` // a string; an object from some servers
	} `json:"function"`
}

// toolCall is a tool call joined from its pieces.
type toolCall struct {
	id, kind, name string
	arguments      []byte
}

// addTools merges pieces of tool calls by index. The first id, type and name
// count; arguments are joined.
func (p *parts) addTools(raw []byte) error {
	if err := p.takeBytes(len(raw)); err != nil {
		return err
	}
	var deltas []wireToolCall
	if err := unmarshal(raw, &deltas); err != nil {
		return fmt.Errorf("%w: its tool calls", errMalformed)
	}
	for _, d := range deltas {
		if d.Index < 0 || d.Index >= maxToolCalls {
			return fmt.Errorf("%w: tool call %d of at most %d", errMalformed, d.Index, maxToolCalls)
		}
		for len(p.tools) <= d.Index {
			p.tools = append(p.tools, toolCall{})
		}
		t := &p.tools[d.Index]
		setOnce(&t.id, d.ID)
		setOnce(&t.kind, d.Type)
		setOnce(&t.name, d.Function.Name)
		args := d.Function.Arguments
		switch args.Kind() {
		case jsontext.KindString:
			t.arguments, _ = jsontext.AppendUnquote(t.arguments, args) // valid; what is not UTF-8 becomes U+FFFD
		case jsontext.KindBeginObject:
			t.arguments = append(t.arguments, args...)
		}
	}
	return nil
}

func setOnce(s *string, v lenient) {
	if *s == "" {
		*s = string(v)
	}
}

// toolCalls renders the calls in the form of a whole answer; nil without any.
func (p *parts) toolCalls() ([]byte, error) {
	if p.rawTools != nil {
		out, ok := canonical(p.rawTools)
		if !ok {
			return nil, fmt.Errorf("%w: its tool calls", errMalformed)
		}
		if string(out) == "[]" {
			return nil, nil
		}
		return out, nil
	}
	if len(p.tools) == 0 {
		return nil, nil
	}
	out := []byte{'['}
	for i, t := range p.tools {
		if i > 0 {
			out = append(out, ',')
		}
		out = appendMember(append(out, '{'), "id", t.id)
		out = appendMember(append(out, ','), "type", t.kind)
		out = appendMember(append(out, `,"function":{`...), "name", t.name)
		out = appendMember(append(out, ','), "arguments", string(t.arguments))
		out = append(out, "}}"...)
	}
	return append(out, ']'), nil
}

func appendMember(dst []byte, name, value string) []byte {
	dst = append(append(append(dst, '"'), name...), `":`...)
	dst, _ = jsontext.AppendQuote(dst, value) // invalid UTF-8 becomes U+FFFD
	return dst
}
