package openai

import (
	"errors"
	"fmt"

	"github.com/go-json-experiment/json/jsontext"

	"rollout/gpuworker/engine"
)

// maxToolCalls bounds the calls of one answer.
const maxToolCalls = 1024

var (
	errNoChoice = errors.New("the answer has no choices")
	errFinish   = errors.New("the server gave the answer up")
)

// parts is an answer being put together.
type parts struct {
	max       int64 // bytes that may still be added
	text      []byte
	reasoning []byte
	tools     []toolCall
	rawTools  []byte // of a whole answer, as sent
	logprobs  logprobs
	finish    string
	finished  bool // a finish reason came
	chosen    bool // a choice came
	model     string
	usage     engine.Usage
}

type toolCall struct {
	id, kind, name string
	arguments      []byte
}

// reset empties the parts; small buffers are kept.
func (p *parts) reset(max int64) {
	*p = parts{max: max, text: kept(p.text), reasoning: kept(p.reasoning)}
}

func kept(b []byte) []byte {
	if cap(b) > 64<<10 {
		return nil
	}
	return b[:0]
}

// add adds a chunk, or a whole answer. Only the first choice counts, as every
// request asks for one.
func (p *parts) add(a *wireAnswer) error {
	if p.model == "" {
		p.model = string(a.Model)
	}
	if len(a.Usage) > 0 && a.Usage.Kind() == jsontext.KindBeginObject {
		p.addUsage(a.Usage)
	}
	for i := range a.Choices {
		if c := &a.Choices[i]; c.Index == 0 {
			if err := p.addChoice(c); err != nil {
				return err
			}
		}
	}
	return nil
}

// addUsage takes counts that make sense; others are none.
func (p *parts) addUsage(raw jsontext.Value) {
	var u wireUsage
	if unmarshal(raw, &u) != nil || u.PromptTokens < 0 || u.CompletionTokens < 0 {
		return
	}
	p.usage = engine.Usage(u)
}

func (p *parts) addChoice(c *wireChoice) error {
	p.chosen = true
	if c.FinishReason != "" {
		p.finish, p.finished = string(c.FinishReason), true
	}
	size := len(c.Text) + len(c.Logprobs)
	p.text = append(p.text, c.Text...)
	for _, m := range []*wireMessage{&c.Delta, &c.Message} {
		reasoning := m.ReasoningContent
		if reasoning == "" {
			reasoning = m.Reasoning
		}
		size += len(m.Content) + len(reasoning) + len(m.ToolCalls)
		p.text = append(p.text, m.Content...)
		p.reasoning = append(p.reasoning, reasoning...)
	}
	if p.max -= int64(size); p.max < 0 {
		return errOversized
	}
	if isArray(c.Message.ToolCalls) {
		p.rawTools = c.Message.ToolCalls
	}
	if isArray(c.Delta.ToolCalls) {
		if err := p.addTools(c.Delta.ToolCalls); err != nil {
			return err
		}
	}
	if c.Logprobs.Kind() == jsontext.KindBeginObject {
		return p.logprobs.add(c.Logprobs)
	}
	return nil
}

func isArray(v jsontext.Value) bool { return v.Kind() == jsontext.KindBeginArray }

// addTools merges pieces of tool calls: the first id, type and name of an
// index count, arguments are joined.
func (p *parts) addTools(raw jsontext.Value) error {
	var deltas []wireToolCall
	if err := unmarshal(raw, &deltas); err != nil {
		return malformed(err, raw)
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
			t.arguments, _ = jsontext.AppendUnquote(t.arguments, args) // it is a valid string; what is not UTF-8 is U+FFFD
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

// answer returns the finished answer.
func (p *parts) answer() (engine.Answer, error) {
	if !p.chosen {
		return engine.Answer{}, errNoChoice
	}
	if p.finish == "error" || p.finish == "abort" {
		return engine.Answer{}, fmt.Errorf("%w: finish reason %q", errFinish, p.finish)
	}
	tools, err := p.toolCalls()
	if err != nil {
		return engine.Answer{}, err
	}
	return engine.Answer{
		Text: string(p.text), FinishReason: limited(p.finish, 64), Reasoning: string(p.reasoning),
		ToolCalls: tools, Logprobs: p.logprobs.json(), Model: limited(p.model, 1024), Usage: p.usage,
	}, nil
}

// toolCalls renders the calls as a whole answer has them; nil if none.
func (p *parts) toolCalls() ([]byte, error) {
	if len(p.rawTools) > len("[]") {
		out, ok := tidy(p.rawTools)
		if !ok {
			return nil, fmt.Errorf("%w: its tool calls repeat a name", errMalformed)
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
	dst, _ = jsontext.AppendQuote(dst, value) // invalid UTF-8 is written as U+FFFD
	return dst
}

// limited cuts a server's word short.
func limited(s string, n int) string {
	if len(s) > n {
		return s[:n]
	}
	return s
}
