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
	logprobs  logprobs
	finish    string // "" until a finish reason comes
	chosen    bool   // a choice came
	delta     bool   // a piece of a chat came
	model     string
	usage     []byte // the last object of token counts, as sent
	pieces    int64  // of text that came
	snapshot  []byte // a message beside a delta, as long as no delta has had text
	any       bool   // the endpoint has no choices
	index     int    // of the choice that counts, plus 1; 0 until one came

	// What the server sends besides these, for engine.Rest.
	inMessage, inChoice, inBody object
	saysReasoning               bool // the message's member is reasoning

	// For trailingWhitespace.
	scanned int // bytes of text that it has looked at
	blank   int // trailing bytes of white space among them

	envelope  envelope
	onlyText  []byte // the one text of the piece being added
	addsOther bool   // the piece adds something beside that text
}

// reset empties the parts and keeps small buffers.
func (p *parts) reset(max int64) {
	*p = parts{max: max, text: kept(p.text), reasoning: kept(p.reasoning), usage: kept(p.usage),
		envelope: p.envelope.emptied()}
}

func kept(b []byte) []byte {
	if cap(b) > 64<<10 {
		return nil
	}
	return b[:0]
}

// finished reports whether a finish reason came.
func (p *parts) finished() bool { return p.finish != "" }

// add adds a piece of a stream, or a whole answer, of either endpoint. An error
// object in its place becomes a *sentError. Only one choice counts, the one with
// index 0 if there is one: every request asks for one.
func (p *parts) add(data []byte) error {
	if raw, ok := p.envelope.match(data); ok {
		if text, err := rawjson.AppendText(p.text, raw); err == nil {
			p.text = text
			return p.countPiece(raw)
		}
	}
	if p.any {
		return p.addAny(data)
	}
	if rawjson.IsArray(data) { // some servers put errors, and others answers, into a list
		return asMalformed(rawjson.Elements(data, p.addObject), data)
	}
	return p.addObject(data)
}

func (p *parts) addObject(data []byte) error {
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
		case "id", "created", "system_fingerprint": // differ in every answer
		case "obfuscation", "timings", "time_info", "x_groq", "request_id":
		default:
			return p.addRest(&p.inBody, name, v)
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

// addRest adds a member that the answer has no field for. A member of the envelope
// that is not a list is the same in every piece, or the last one counts.
func (p *parts) addRest(to *object, name, v []byte) error {
	if rawjson.IsNull(v) {
		return nil
	}
	if f := to.find(name); f != nil && f.kind == rawValue && string(f.value) == string(v) {
		return nil
	}
	p.addsOther = p.addsOther || rawjson.IsArray(v) || to == &p.inMessage
	if err := p.takeBytes(len(v)); err != nil {
		return err
	}
	if rawjson.IsString(v) && to != &p.inMessage { // only messages come in pieces of text
		return to.set(name, v)
	}
	return to.add(name, v, 0)
}

// stringOr returns a string's text, or "" for any other value.
func stringOr(v []byte) string {
	text, err := rawjson.AppendText(nil, v)
	if err != nil {
		return ""
	}
	return string(text)
}

func (p *parts) addChoices(choices []byte) error {
	if rawjson.IsNull(choices) {
		return nil
	}
	var other []byte // the first choice with another index
	otherIndex, taken := 0, false
	err := rawjson.Elements(choices, func(choice []byte) error {
		index, ok := indexOf(choice)
		if ok && index+1 != max(p.index, 1) {
			if other == nil {
				other, otherIndex = choice, index
			}
			return nil
		}
		p.index, taken = max(p.index, 1), true
		return p.addChoice(choice)
	})
	if err != nil || taken || other == nil || p.index != 0 {
		return err
	}
	p.index = otherIndex + 1
	return p.addChoice(other)
}

func (p *parts) addChoice(choice []byte) error {
	var text, delta, message, logprobs []byte
	err := rawjson.Members(choice, func(name, v []byte) error {
		switch string(name) {
		case "index":
		case "text": // completions
			text = v
		case "delta": // chats, a chunk
			delta = v
		case "message": // chats, whole
			message = v
		case "logprobs":
			logprobs = v
		case "finish_reason":
			p.addFinish(v)
		default:
			return p.addRest(&p.inChoice, name, v)
		}
		return nil
	})
	if err != nil {
		return err
	}
	hasContent := text != nil || delta != nil || message != nil || !rawjson.IsNull(logprobs) || p.finished()
	p.chosen = p.chosen || hasContent // an empty choice does not count
	if err := p.addText(&p.text, text); err != nil {
		return err
	}
	switch {
	case !rawjson.IsNull(delta):
		p.delta = true
		if err := p.addMessage(delta, false); err != nil {
			return err
		}
		if !rawjson.IsNull(message) && p.pieces == 0 { // the whole so far, beside the piece
			p.snapshot = append(p.snapshot[:0], message...)
		}
	case !rawjson.IsNull(message) && !p.delta:
		if err := p.addMessage(message, true); err != nil {
			return err
		}
	case !rawjson.IsNull(message) && p.pieces == 0:
		p.snapshot = append(p.snapshot[:0], message...)
	}
	return p.addLogprobs(logprobs)
}

// addFinish takes a finish reason: a string, or an object with a type (SGLang's own
// endpoint). An empty one does not count: SGLang, Ollama and others send "" where OpenAI
// sends null.
func (p *parts) addFinish(v []byte) {
	if rawjson.IsObject(v) {
		_ = rawjson.Members(v, func(name, v []byte) error { // the walk ends at an error
			if string(name) == "type" {
				p.addFinish(v)
			}
			return nil
		})
		return
	}
	if reason := stringOr(v); reason != "" {
		p.finish = reason
	}
}

// interrupted reports whether a finish reason says that the server gave up, so that
// the text may end anywhere.
func interrupted(reason string) bool {
	switch reason {
	case "error", "abort", "aborted", "cancelled", "canceled", "timeout", "network_error", "server_error",
		"insufficient_system_resource": // DeepSeek
		return true
	}
	return false
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
	if *text, err = rawjson.AppendText(*text, raw); err != nil {
		return fmt.Errorf("%w: a text is not a string", errMalformed)
	}
	return nil
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

// answer returns the finished answer.
func (p *parts) answer() (engine.Answer, error) {
	if !p.chosen {
		return engine.Answer{}, errNoChoice
	}
	if interrupted(p.finish) {
		return engine.Answer{}, fmt.Errorf("%w: finish reason %q", errFinish, p.finish)
	}
	if p.snapshot != nil && p.pieces == 0 && len(p.tools) == 0 {
		if err := p.addMessage(p.snapshot, true); err != nil {
			return engine.Answer{}, asMalformed(err, p.snapshot)
		}
	}
	usage, details := p.tokens()
	return engine.Answer{
		Text: string(p.text), FinishReason: text.Truncate(p.finish, 64, ""), Reasoning: string(p.reasoning),
		ToolCalls: p.toolCalls(), Logprobs: p.logprobs.json(), Model: text.Truncate(p.model, 1024, ""), Usage: usage,
		Rest: engine.Rest{Message: p.inMessage.json(), Choice: p.inChoice.json(), Usage: details, Body: p.inBody.json(),
			SaysReasoning: p.saysReasoning},
	}, nil
}
