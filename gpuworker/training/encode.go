package training

import (
	"rollout/gpuworker/tinylm/model"
	"rollout/gpuworker/tinylm/tokenizer"
	"rollout/gpuworker/training/dataset"
)

// minSeqLen has room for a token of a prompt, one of an answer, the end, and
// one to spare.
const minSeqLen = 4

// encoder makes sequences of rows. A prompt that is text is encoded as
// completions encode it, a chat as chats: the trained model is asked in the
// form that it learned from. The answer ends with the end of text.
//
// A row of more than limit tokens loses the beginning of its prompt first, of
// which one token stays, and then the end of its answer.
type encoder struct {
	tokenizer *tokenizer.Tokenizer
	limit     int  // most tokens of a sequence
	full      bool // tokens of the prompt count, too
}

// example returns the sequence of a row, and whether it was cut.
func (e encoder) example(x dataset.Example) (model.Sequence, bool, error) {
	head, err := e.head(x)
	if err != nil {
		return model.Sequence{}, false, err
	}
	tail := append(e.tokenizer.Encode(nil, x.Answer), e.tokenizer.EndOfText())
	// The last token is only a target: there is room for one more.
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

// prompt returns the tokens of a text; an empty one begins a text.
func (e encoder) prompt(text string) []int32 {
	if text == "" {
		return []int32{e.tokenizer.EndOfText()}
	}
	return e.tokenizer.Encode(nil, text)
}

// pair returns the sequences of the chosen and the rejected answer, and
// whether one was cut. Both end with the end of text, where their reward is.
func (e encoder) pair(p dataset.Pair) (two [2]model.Sequence, cut bool) {
	for i, answer := range []string{p.Chosen, p.Rejected} {
		head, tail, c := fit(e.prompt(p.Prompt), e.tokenizer.Encode(nil, answer), e.limit-1)
		two[i].Tokens = append(append(head, tail...), e.tokenizer.EndOfText())
		cut = cut || c
	}
	return two, cut
}

// fit cuts what is more than limit tokens together.
func fit(head, tail []int32, limit int) ([]int32, []int32, bool) {
	if len(head)+len(tail) <= limit {
		return head, tail, false
	}
	tail = tail[:min(len(tail), limit-1)]
	return head[len(head)-min(len(head), limit-len(tail)):], tail, true
}

// packed puts sequences together, in their order, as long as limit tokens hold
// them. What each of them learns has the same bits as alone.
func packed(apart []model.Sequence, limit int) []model.Sequence {
	var out []model.Sequence
	for _, q := range apart {
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
