package tiny

import (
	"errors"
	"fmt"
	"strings"

	"rollout/gpuworker/engine/tiny/openaireq"
	"rollout/shared/fault"
)

// PromptTokens returns the tokens of each prompt of a request. A prompt that
// leaves no room in the context for one token of an answer is an Invalid fault of
// class too_long.
func (e *Engine) PromptTokens(req openaireq.Request) ([][]int32, error) {
	if req.Chat {
		tokens, err := e.ChatTokens(req.Messages)
		return [][]int32{tokens}, err
	}
	out := make([][]int32, len(req.Prompts))
	for i, p := range req.Prompts {
		var err error
		if p.Tokens == nil {
			out[i], err = e.textTokens(p.Text)
		} else {
			out[i], err = e.checkLength(p.Tokens, false)
		}
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

// ChatTokens returns the tokens of a chat, which the model continues.
//
// With ChatTurns, each message becomes a turn. A model without ChatTurns was
// trained on plain text only, and has never seen role names. For it, ChatTokens
// joins the contents of the messages with line breaks, so that a chat of one
// message gets the same answer as a completion of its text.
func (e *Engine) ChatTokens(messages []openaireq.Message) ([]int32, error) {
	if !e.chatTurns {
		texts := make([]string, len(messages))
		for i, m := range messages {
			texts[i] = m.Text
		}
		return e.textTokens(strings.Join(texts, "\n"))
	}
	var tokens []int32
	for i, m := range messages {
		text, cut := e.truncate(m.Text)
		var err error
		if tokens, err = e.tokenizer.AppendTurn(tokens, m.Role, text); err != nil {
			op := fmt.Sprintf("message %d", i)
			return nil, &fault.Error{Kind: fault.Invalid, Class: fault.Refused, Op: op, Err: err}
		}
		if cut || len(tokens) >= e.Context() {
			return e.checkLength(tokens, true)
		}
	}
	return e.checkLength(e.tokenizer.AppendGenerationPrompt(tokens), false)
}

// Tokens returns the tokens of a text of any length.
func (e *Engine) Tokens(text string) []int32 { return e.tokenizer.Encode(nil, text) }

// Piece returns the bytes of a token; see Tokenizer.Piece.
func (e *Engine) Piece(id int32) []byte { return e.tokenizer.Piece(id) }

// textTokens returns a prompt's tokens. An empty prompt becomes the end-of-text
// token, after which a new text begins.
func (e *Engine) textTokens(text string) ([]int32, error) {
	text, cut := e.truncate(text)
	tokens := e.tokenizer.Encode(nil, text)
	if len(tokens) == 0 {
		tokens = []int32{e.tokenizer.EndOfText()}
	}
	return e.checkLength(tokens, cut)
}

// truncate cuts off a text that certainly exceeds the context, and reports whether
// it did. The cost of encoding a hostile prompt is thus bounded by the context
// instead of the prompt's length.
func (e *Engine) truncate(text string) (string, bool) {
	if most := e.longestToken * (e.Context() + 1); len(text) > most {
		return text[:most], true
	}
	return text, false
}

// checkLength returns the tokens, or a fault if they are empty or leave no room
// for an answer. cut says that the prompt has more tokens than these.
func (e *Engine) checkLength(tokens []int32, cut bool) ([]int32, error) {
	if len(tokens) == 0 {
		return nil, &fault.Error{Kind: fault.Invalid, Class: fault.Refused, Err: errors.New("prompt has no tokens")}
	}
	if cut || len(tokens) >= e.Context() {
		return nil, e.tooLong(int64(len(tokens)), 1, cut)
	}
	return tokens, nil
}

// TooLong returns the fault of a request whose prompt tokens and output tokens
// together exceed the context: Invalid, of class too_long.
func (e *Engine) TooLong(prompt, output int64) error { return e.tooLong(prompt, output, false) }

// tooLong uses vLLM's message, because clients parse the numbers in it. atLeast
// says that the prompt has at least so many tokens.
func (e *Engine) tooLong(prompt, output int64, atLeast bool) error {
	least := ""
	if atLeast {
		least = "at least "
	}
	return &fault.Error{Kind: fault.Invalid, Class: fault.TooLong, Err: fmt.Errorf(
		"this model's maximum context length is %d tokens. However, you requested %d output tokens and your prompt "+
			"contains %s%d input tokens, for a total of %s%d tokens. Please reduce the length of the input prompt or "+
			"the number of requested output tokens",
		e.Context(), output, least, prompt, least, prompt+output)}
}
