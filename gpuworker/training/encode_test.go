package training

import (
	"fmt"
	"testing"

	"rollout/gpuworker/tinylm/model"
	"rollout/gpuworker/tinylm/tokenizer"
	"rollout/gpuworker/training/dataset"
)

// bytesOnly returns a tokenizer without merges. Token 256 ends a text; 258 and 259
// begin a user's and an assistant's turn.
func bytesOnly(t testing.TB) *tokenizer.Tokenizer {
	t.Helper()
	tok, err := tokenizer.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	return tok
}

func TestSequencesOfExamples(t *testing.T) {
	t.Parallel()
	chat := dataset.Example{Chat: []dataset.Message{{Role: "user", Content: "a"}}, Answer: "xy"}
	for _, c := range []struct {
		name            string
		row             dataset.Example
		limit           int
		full            bool
		tokens, targets []int32
		cut             bool
	}{
		{
			"loss on the answer", dataset.Example{Prompt: "ab", Answer: "xy"}, 9, false,
			[]int32{'a', 'b', 'x', 'y'}, []int32{-1, 'x', 'y', 256}, false,
		},
		{
			"loss on all tokens", dataset.Example{Prompt: "ab", Answer: "xy"}, 9, true,
			[]int32{'a', 'b', 'x', 'y'}, []int32{'b', 'x', 'y', 256}, false,
		},
		{
			"empty prompt", dataset.Example{Answer: "xy"}, 9, false,
			[]int32{256, 'x', 'y'}, []int32{'x', 'y', 256}, false,
		},
		{
			"chat", chat, 9, false,
			[]int32{258, 'a', 259, 'x', 'y'}, []int32{-1, -1, 'x', 'y', 256}, false,
		},
		{
			"chat with loss on all tokens", chat, 9, true,
			[]int32{258, 'a', 259, 'x', 'y'}, []int32{'a', 259, 'x', 'y', 256}, false,
		},
		{
			"exactly the limit", dataset.Example{Prompt: "ab", Answer: "xy"}, 4, false,
			[]int32{'a', 'b', 'x', 'y'}, []int32{-1, 'x', 'y', 256}, false,
		},
		{
			"long prompt loses its beginning", dataset.Example{Prompt: "abcdef", Answer: "xy"}, 4, false,
			[]int32{'e', 'f', 'x', 'y'}, []int32{-1, 'x', 'y', 256}, true,
		},
		{
			"long answer loses its end", dataset.Example{Prompt: "abc", Answer: "uvwxyz"}, 4, false,
			[]int32{'c', 'u', 'v', 'w'}, []int32{'u', 'v', 'w', 'x'}, true,
		},
	} {
		q, cut, err := encoder{bytesOnly(t), c.limit, c.full}.example(c.row)
		if err != nil || fmt.Sprint(q.Tokens, q.Targets, cut) != fmt.Sprint(c.tokens, c.targets, c.cut) {
			t.Errorf("%s: %v %v %v, %v\nwant %v %v %v",
				c.name, q.Tokens, q.Targets, cut, err, c.tokens, c.targets, c.cut)
		}
	}
}

func TestSequencesOfPairsEndWithTheEndOfText(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name             string
		row              dataset.Pair
		limit            int
		chosen, rejected []int32
		cut              bool
	}{
		{
			"short", dataset.Pair{Prompt: "ab", Chosen: "x", Rejected: "yz"}, 9,
			[]int32{'a', 'b', 'x', 256}, []int32{'a', 'b', 'y', 'z', 256}, false,
		},
		{
			"empty prompt", dataset.Pair{Chosen: "x", Rejected: "y"}, 9,
			[]int32{256, 'x', 256}, []int32{256, 'y', 256}, false,
		},
		{
			"truncated", dataset.Pair{Prompt: "abc", Chosen: "x", Rejected: "vwxyz"}, 4,
			[]int32{'b', 'c', 'x', 256}, []int32{'c', 'v', 'w', 256}, true,
		},
	} {
		two, cut := encoder{tokenizer: bytesOnly(t), limit: c.limit}.pair(c.row)
		if fmt.Sprint(two[0].Tokens, two[1].Tokens, cut) != fmt.Sprint(c.chosen, c.rejected, c.cut) {
			t.Errorf("%s: %v %v %v, want %v %v %v",
				c.name, two[0].Tokens, two[1].Tokens, cut, c.chosen, c.rejected, c.cut)
		}
	}
}

func TestPackedSequencesKeepTheirOrderAndTheirStarts(t *testing.T) {
	t.Parallel()
	var separate []model.Sequence
	for i, n := range []int{3, 2, 4, 1} {
		q := model.Sequence{Tokens: make([]int32, n), Targets: make([]int32, n)}
		for j := range n {
			q.Tokens[j], q.Targets[j] = int32(i), int32(j)
		}
		separate = append(separate, q)
	}
	want := "[{[0 0 0 1 1] [0 1 2 0 1] [0 3]} {[2 2 2 2 3] [0 1 2 3 0] [0 4]}]"
	if got := fmt.Sprint(pack(separate, 5)); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}
