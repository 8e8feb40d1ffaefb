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
	errFinish   = errors.New("the server aborted the answer")
)

// parts is an answer that is being joined from its pieces.
type parts struct {
	max       int64 // bytes that may still be added
	text      []byte
	reasoning []byte
	tools     []toolCall
	rawTools  []byte // tool calls of a whole answer, as sent
	logprobs  logprobs
	finish    string
	finished  bool // a finish reason came
	chosen    bool // a choice came
	model     string
	usage     engine.Usage
	pieces    int64 // of text that came

	// For trailingWhitespace.
	scanned int // bytes of text that it has looked at
	blank   int // trailing bytes of white space among them

	envelope  envelope
	onlyText  []byte // the one text of the piece being added
	addsOther bool   // the piece adds something beside that text
}

// reset empties the parts and keeps small buffers.
func (p *parts) reset(max int64) {
	*p = parts{max: max, text: kept(p.text), reasoning: kept(p.reasoning),
		envelope: p.envelope.emptied()}
}

func kept(b []byte) []byte {
	if cap(b) > 64<<10 {
		return nil
	}
	return b[:0]
}

// add adds a chunk of a stream, or a whole answer, of either endpoint. An error
// object in its place becomes a *sentError. Only the first choice counts: every
// request asks for one.
func (p *parts) add(data []byte) error {
	if raw, ok := p.envelope.match(data); ok {
		if text, err := rawjson.AppendText(p.text, raw); err == nil {
			p.text = text
			return p.countPiece(raw)
		}
	}
	p.onlyText, p.addsOther = nil, false
	failed := false
	err := rawjson.Members(data, func(name, v []byte) error {
		switch string(name) {
		case "object":
			failed = failed || string(v) == `"error"`
		case "error":
			failed = failed || !rawjson.IsNull(v) && string(v) != `""` && string(v) != "false"
		case "model":
			if p.model == "" {
				p.model = stringOr(v)
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
	if err == nil && !p.addsOther {
		p.envelope.learn(data, p.onlyText)
	}
	return asMalformed(err, data)
}

// stringOr returns a string's text, or "" for any other value.
func stringOr(v []byte) string {
	text, err := rawjson.AppendText(nil, v)
	if err != nil {
		return ""
	}
	return string(text)
}

// addUsage takes valid token counts and ignores others.
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
		hasContent := text != nil || delta != nil || message != nil || !rawjson.IsNull(logprobs) || rawjson.IsString(finish)
		p.chosen = p.chosen || hasContent // an empty choice does not count
		if rawjson.IsString(finish) {
			p.finish, p.finished = stringOr(finish), true
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

// addMessage adds a chat's message, or a piece of it.
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
				p.addsOther = true
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

// addText appends a string to a text. Null adds nothing.
func (p *parts) addText(text *[]byte, raw []byte) (err error) {
	if rawjson.IsNull(raw) {
		return nil
	}
	p.addsOther = p.addsOther || p.onlyText != nil || text != &p.text
	p.onlyText = raw
	if err := p.countPiece(raw); err != nil {
		return err
	}
	*text, err = rawjson.AppendText(*text, raw)
	return err
}

// countPiece counts a string that is added to a text.
func (p *parts) countPiece(raw []byte) error {
	if len(raw) > len(`""`) {
		p.pieces++
	}
	return p.takeBytes(len(raw))
}

func (p *parts) addLogprobs(raw []byte) error {
	if !rawjson.IsObject(raw) {
		return nil
	}
	p.addsOther = true
	if err := p.takeBytes(len(raw)); err != nil {
		return err
	}
	return p.logprobs.add(raw)
}

// takeBytes counts bytes against the answer's bound.
func (p *parts) takeBytes(n int) error {
	if p.max -= int64(n); p.max < 0 {
		return errOversized
	}
	return nil
}

// keepTools keeps a whole answer's tool calls.
func (p *parts) keepTools(raw []byte) error {
	p.rawTools = bytes.Clone(raw)
	return p.takeBytes(len(raw))
}

// usageSoFar returns what the answer has cost so far: the server's counts, or else
// a token for each piece.
func (p *parts) usageSoFar() engine.Usage {
	if p.usage != (engine.Usage{}) {
		return p.usage
	}
	return engine.Usage{CompletionTokens: p.pieces}
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
