package training

import (
	"rollout/gpuworker/tinylm/model"
	"rollout/gpuworker/tinylm/tokenizer"
	"rollout/gpuworker/training/dataset"
)

// minSeqLen is the minimum of max_seq_len: one token each of the prompt and the
// answer, the end of text, and one more.
const minSeqLen = 4

// encoder converts rows to sequences. It encodes a text prompt as the engine
// encodes completions, and a chat as the engine encodes chats, so that requests
// have the form of the training data. Every answer ends with the end-of-text
// token.
//
// A row with more than limit tokens is truncated: first the beginning of its
// prompt, of which at least one token stays, then the end of its answer.
type encoder struct {
	tokenizer *tokenizer.Tokenizer
	limit     int  // maximum number of tokens of a sequence
	full      bool // the loss includes the tokens of the prompt
}

// example returns the sequence of a row, and whether it was truncated.
func (e encoder) example(x dataset.Example) (model.Sequence, bool, error) {
	head, err := e.head(x)
	if err != nil {
		return model.Sequence{}, false, err
	}
	tail := append(e.tokenizer.Encode(nil, x.Answer), e.tokenizer.EndOfText())
	// The last token is only a target and needs no position.
	head, tail, cut := fit(head, tail, e.limit+1)
	all := append(head, tail...)
	n := len(all) - 1
	q := model.Sequence{Tokens: all[:n:n], Targets: make([]int32, n)}
	copy(q.Targets, all[1:])
	if !e.full {
		for i := range len(head) - 1 {
			q.Targets[i] = -1
		}
	}
	return q, cut, nil
}

// head returns the tokens before the answer.
func (e encoder) head(x dataset.Example) ([]int32, error) {
	if x.Chat == nil {
		return e.prompt(x.Prompt), nil
	}
	var head []int32
	for _, m := range x.Chat {
		var err error
		if head, err = e.tokenizer.AppendTurn(head, m.Role, m.Content); err != nil {
			return nil, err
		}
	}
	return e.tokenizer.AppendGenerationPrompt(head), nil
}

// prompt returns the tokens of a text prompt. An empty prompt becomes the
// end-of-text token, after which a new text begins.
func (e encoder) prompt(text string) []int32 {
	if text == "" {
		return []int32{e.tokenizer.EndOfText()}
	}
	return e.tokenizer.Encode(nil, text)
}

// pair returns the sequences of the chosen and the rejected answer, and whether
// one was truncated. Both end with the end-of-text token, at which the reward is
// computed.
func (e encoder) pair(p dataset.Pair) (two [2]model.Sequence, cut bool) {
	for i, answer := range []string{p.Chosen, p.Rejected} {
		head, tail, c := fit(e.prompt(p.Prompt), e.tokenizer.Encode(nil, answer), e.limit-1)
		two[i].Tokens = append(append(head, tail...), e.tokenizer.EndOfText())
		cut = cut || c
	}
	return two, cut
}

// fit truncates head and tail to limit tokens together, and reports whether it
// did.
func fit(head, tail []int32, limit int) ([]int32, []int32, bool) {
	if len(head)+len(tail) <= limit {
		return head, tail, false
	}
	tail = tail[:min(len(tail), limit-1)]
	return head[len(head)-min(len(head), limit-len(tail)):], tail, true
}

// pack joins consecutive sequences into sequences of up to limit tokens. The loss
// and the gradient of each have the same bits as without packing.
func pack(separate []model.Sequence, limit int) []model.Sequence {
	var out []model.Sequence
	for _, q := range separate {
		last := len(out) - 1
		if last < 0 || len(out[last].Tokens)+len(q.Tokens) > limit {
			out = append(out, model.Sequence{})
			last++
		}
		p := &out[last]
		p.Starts = append(p.Starts, int32(len(p.Tokens)))
		p.Tokens = append(p.Tokens, q.Tokens...)
		p.Targets = append(p.Targets, q.Targets...)
	}
	return out
}
