package openai

import (
	"bytes"
	"errors"
	"fmt"

	"rollout/gpuworker/engine"
	"rollout/gpuworker/engine/internal/rawjson"
	"rollout/shared/text"
)

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
	pieces    int64 // of text that came
	looked    int   // bytes of text that blanks has looked at
	blank     int   // of these, how many of white space they end with
	usual     envelope
	said      []byte // the one text that the piece being added has, if it has no more
	saidMore  bool   // the piece has something else that adds up
}

// reset empties the parts; small buffers are kept.
func (p *parts) reset(max int64) {
	*p = parts{max: max, text: kept(p.text), reasoning: kept(p.reasoning), usual: p.usual.emptied()}
}

func kept(b []byte) []byte {
	if cap(b) > 64<<10 {
		return nil
	}
	return b[:0]
}

// add adds a chunk of a stream, or a whole answer, of either endpoint. An error
// object in its place is a *sentError. Only the first choice counts, as every
// request asks for one.
func (p *parts) add(data []byte) error {
	if raw, ok := p.usual.match(data); ok {
		if text, err := rawjson.AppendText(p.text, raw); err == nil {
			p.text = text
			return p.count(raw)
		}
	}
	p.said, p.saidMore = nil, false
	failed := false
	err := rawjson.Members(data, func(name, v []byte) error {
		switch string(name) {
		case "object":
			failed = failed || string(v) == `"error"`
		case "error":
			failed = failed || !rawjson.IsNull(v) && string(v) != `""` && string(v) != "false"
		case "model":
			if p.model == "" {
				p.model = word(v)
			}
		case "usage":
			p.addUsage(v)
		case "choices":
			return p.addChoices(v)
		}
		return nil
	})
	if failed {
		return &sentError{bytes.Clone(data)}
	}
	if err == nil && !p.saidMore {
		p.usual.learn(data, p.said)
	}
	return shaped(err, data)
}

// word is a string where servers may also send something else, which counts as
// nothing.
func word(v []byte) string {
	text, err := rawjson.AppendText(nil, v)
	if err != nil {
		return ""
	}
	return string(text)
}

// addUsage takes counts that make sense; others are none.
func (p *parts) addUsage(raw []byte) {
	if !rawjson.IsObject(raw) {
		return
	}
	var u wireUsage
	if unmarshal(raw, &u) == nil && u.PromptTokens >= 0 && u.CompletionTokens >= 0 {
		p.usage = engine.Usage(u)
	}
}

func (p *parts) addChoices(raw []byte) error {
	if rawjson.IsNull(raw) {
		return nil
	}
	return rawjson.Elements(raw, func(choice []byte) error {
		var index, text, delta, message, logprobs, finish []byte
		err := rawjson.Members(choice, func(name, v []byte) error {
			switch string(name) {
			case "index":
				index = v
			case "text": // completions
				text = v
			case "delta": // chats, a chunk
				delta = v
			case "message": // chats, whole
				message = v
			case "logprobs":
				logprobs = v
			case "finish_reason":
				finish = v
			}
			return nil
		})
		if err != nil || !rawjson.IsNull(index) && string(index) != "0" {
			return err
		}
		said := text != nil || delta != nil || message != nil || !rawjson.IsNull(logprobs) || rawjson.IsString(finish)
		p.chosen = p.chosen || said // an empty choice is none
		if rawjson.IsString(finish) {
			p.finish, p.finished = word(finish), true
		}
		if err := p.addText(&p.text, text); err != nil {
			return err
		}
		if err := p.addMessage(delta, p.addTools); err != nil {
			return err
		}
		if err := p.addMessage(message, p.keepTools); err != nil {
			return err
		}
		return p.addLogprobs(logprobs)
	})
}

// addMessage adds a chat's message or its next piece.
func (p *parts) addMessage(raw []byte, tools func([]byte) error) error {
	if rawjson.IsNull(raw) {
		return nil
	}
	var reasoning []byte
	err := rawjson.Members(raw, func(name, v []byte) error {
		switch string(name) {
		case "content":
			return p.addText(&p.text, v)
		case "reasoning_content", "reasoning": // vLLM, SGLang, llama.cpp; newer vLLM, hosted APIs
			if rawjson.IsString(v) && len(v) > len(reasoning) { // some send both
				reasoning = v
			}
		case "tool_calls":
			if rawjson.IsArray(v) {
				p.saidMore = true
				return tools(v)
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	return p.addText(&p.reasoning, reasoning)
}

// addText appends a string to a text; null is none.
func (p *parts) addText(text *[]byte, raw []byte) (err error) {
	if rawjson.IsNull(raw) {
		return nil
	}
	p.saidMore = p.saidMore || p.said != nil || text != &p.text
	p.said = raw
	if err := p.count(raw); err != nil {
		return err
	}
	*text, err = rawjson.AppendText(*text, raw)
	return err
}

// count counts a string that is added to a text.
func (p *parts) count(raw []byte) error {
	if len(raw) > len(`""`) {
		p.pieces++
	}
	return p.spend(len(raw))
}

func (p *parts) addLogprobs(raw []byte) error {
	if !rawjson.IsObject(raw) {
		return nil
	}
	p.saidMore = true
	if err := p.spend(len(raw)); err != nil {
		return err
	}
	return p.logprobs.add(raw)
}

// spend counts bytes against the answer's bound.
func (p *parts) spend(n int) error {
	if p.max -= int64(n); p.max < 0 {
		return errOversized
	}
	return nil
}

// keepTools keeps a whole answer's tool calls.
func (p *parts) keepTools(raw []byte) error {
	p.rawTools = bytes.Clone(raw)
	return p.spend(len(raw))
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
		Text: string(p.text), FinishReason: text.Truncate(p.finish, 64, ""), Reasoning: string(p.reasoning),
		ToolCalls: tools, Logprobs: p.logprobs.json(), Model: text.Truncate(p.model, 1024, ""), Usage: p.usage,
	}, nil
}
