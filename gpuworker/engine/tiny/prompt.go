package tiny

import (
	"errors"
	"fmt"
	"strings"

	"rollout/gpuworker/engine/tiny/openaireq"
	"rollout/shared/fault"
)

// PromptTokens returns the tokens of each of a request's prompts. One that the
// context has no room for, with one token of an answer, is Invalid, class
// too_long.
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
			out[i], err = e.fit(p.Tokens, false)
		}
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

// ChatTokens makes a chat what the model continues.
//
// A model that was trained on turns gets turns. To one that has read books
// alone, and never a chat, names of roles would be odd words: it gets the
// contents in their order, a line end between two, and continues the last one,
// so that whoever says "In the beginning" is answered as by a completion of it.
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
		text, cut := e.bounded(m.Text)
		var err error
		if tokens, err = e.tokenizer.AppendTurn(tokens, m.Role, text); err != nil {
			return nil, &fault.Error{Kind: fault.Invalid, Class: fault.Refused, Op: fmt.Sprintf("message %d", i), Err: err}
		}
		if cut || len(tokens) >= e.Context() {
			return e.fit(tokens, true)
		}
	}
	return e.fit(e.tokenizer.AppendGenerationPrompt(tokens), false)
}

// Tokens returns a text's tokens, of any length.
func (e *Engine) Tokens(text string) []int32 { return e.tokenizer.Encode(nil, text) }

// Piece is what a token spells.
func (e *Engine) Piece(id int32) []byte { return e.tokenizer.Piece(id) }

// textTokens is a prompt's tokens; an empty one begins a text.
func (e *Engine) textTokens(text string) ([]int32, error) {
	text, cut := e.bounded(text)
	tokens := e.tokenizer.Encode(nil, text)
	if len(tokens) == 0 {
		tokens = []int32{e.tokenizer.EndOfText()}
	}
	return e.fit(tokens, cut)
}

// bounded cuts a text off where it can't fit the context any more: what a
// hostile prompt costs is bounded by the context, not by its length.
func (e *Engine) bounded(text string) (string, bool) {
	if most := e.longest * (e.Context() + 1); len(text) > most {
		return text[:most], true
	}
	return text, false
}

// fit refuses a prompt that leaves no room for an answer. cut says that there
// is more of it.
func (e *Engine) fit(tokens []int32, cut bool) ([]int32, error) {
	if len(tokens) == 0 {
		return nil, &fault.Error{Kind: fault.Invalid, Class: fault.Refused, Err: errors.New("prompt has no tokens")}
	}
	if cut || len(tokens) >= e.Context() {
		return nil, e.tooLong(int64(len(tokens)), 1, cut)
	}
	return tokens, nil
}

// TooLong is the fault of a request whose prompt and max_tokens do not fit
// together.
func (e *Engine) TooLong(prompt, output int64) error { return e.tooLong(prompt, output, false) }

// tooLong says it in vLLM's words, which clients read the numbers from.
func (e *Engine) tooLong(prompt, output int64, atLeast bool) error {
	least := ""
	if atLeast {
		least = "at least "
	}
	return &fault.Error{Kind: fault.Invalid, Class: fault.TooLong, Err: fmt.Errorf(
		"this model's maximum context length is %d tokens. However, you requested %d output tokens and your prompt contains %s%d input tokens, for a total of %s%d tokens. Please reduce the length of the input prompt or the number of requested output tokens",
		e.Context(), output, least, prompt, least, prompt+output)}
}
