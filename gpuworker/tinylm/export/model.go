package export

import (
	"bufio"
	"fmt"
	"math"
	"slices"

	"rollout/gpuworker/tinylm/model"
	"rollout/gpuworker/tinylm/tokenizer"
	"rollout/shared/fault"
)

// Model is what is exported.
type Model struct {
	Name        string // Example: "rollout/tiny"
	Description string // one line; "" if there is nothing to say
	License     string // an SPDX name; "" if unknown. Example: "Apache-2.0"
	Digest      string // of the weights that it is made from: its revision; "" if unknown
	Config      model.Config
	Tensors     []model.Tensor // with Hugging Face's names and layout, as model.Model has them
	Tokenizer   *tokenizer.Tokenizer
	RewardHead  []float32 // of a reward model: its score is the product with the last token's state; nil otherwise
	ChatTurns   bool      // it was trained on a chat's turns; otherwise a chat is text that it continues
}

// ScoreTensor is the name of a reward model's head.
const ScoreTensor = "score.weight"

// tensors are all of them.
func (m *Model) tensors() []model.Tensor {
	if m.RewardHead == nil {
		return m.Tensors
	}
	return append(slices.Clip(m.Tensors), model.Tensor{Name: ScoreTensor, Shape: []int{1, len(m.RewardHead)}, Data: m.RewardHead})
}

// check refuses what no format could hold or no reader would understand.
func (m *Model) check() error {
	if n := m.Tokenizer.Vocab(); n > m.Config.Vocab {
		return fault.New(fault.Invalid, "export %s: the tokenizer has %d tokens, the model only %d", m.Name, n, m.Config.Vocab)
	}
	if m.RewardHead != nil && len(m.RewardHead) != m.Config.Width {
		return fault.New(fault.Corrupt, "export %s: a head of %d values for a model %d wide", m.Name, len(m.RewardHead), m.Config.Width)
	}
	for _, t := range m.tensors() {
		values := 1
		for _, n := range t.Shape {
			values *= n
		}
		if values != len(t.Data) || len(t.Shape) == 0 || len(t.Shape) > 2 {
			return fault.New(fault.Corrupt, "export %s: tensor %s has %d values, its shape is %v", m.Name, t.Name, len(t.Data), t.Shape)
		}
	}
	return nil
}

// token is one of the vocabulary, as vocabulary files have it.
type token struct {
	text string // in GPT-2's writing, in which every byte has a visible character; a special token's name
	kind int32  // ggml's
}

// ggml's kinds of tokens.
const (
	tokenNormal  = 1
	tokenControl = 3 // never the result of tokenizing a user's text
	tokenUnused  = 5
)

// tokens are the tokenizer's, and a filler for each id that the model has
// beyond it.
func (m *Model) tokens() []token {
	out := make([]token, m.Config.Vocab)
	for i := range out {
		id := int32(i)
		name := m.Tokenizer.SpecialName(id)
		switch {
		case i >= m.Tokenizer.Vocab():
			out[i] = token{fmt.Sprintf("<|unused-%d|>", i), tokenUnused}
		case name != "":
			out[i] = token{name, tokenControl}
		default:
			out[i] = token{tokenizer.ByteLevel(m.Tokenizer.Piece(id)), tokenNormal}
		}
	}
	return out
}

// merges are pairs of tokens in the order of their ranks, in GPT-2's writing.
func (m *Model) merges() []string {
	var out []string
	for _, pair := range m.Tokenizer.Merges() {
		out = append(out, tokenizer.ByteLevel(m.Tokenizer.Piece(pair.Left))+" "+tokenizer.ByteLevel(m.Tokenizer.Piece(pair.Right)))
	}
	return out
}

// encodingOf is how a tensor is stored: norms keep their precision.
func encodingOf(t model.Tensor, e Encoding) Encoding {
	if len(t.Shape) < 2 {
		return F32
	}
	return e
}

// writeTensor writes a tensor row by row, row i being the tensor's own row
// from(i), and returns how many bytes that took.
func writeTensor(w *bufio.Writer, t model.Tensor, e Encoding, from func(int) int) (int, error) {
	width := t.Shape[len(t.Shape)-1]
	var buffer []byte
	written := 0
	for i := range len(t.Data) / width {
		at := from(i) * width
		row := t.Data[at : at+width]
		for j, v := range row {
			if x := float64(v); math.IsNaN(x) || math.IsInf(x, 0) {
				return written, fault.New(fault.Corrupt, "tensor %s has %g in row %d, column %d", t.Name, v, from(i), j)
			}
		}
		var err error
		if buffer, err = e.row(buffer[:0], row); err != nil {
			return written, fault.Wrap(err, "tensor %s, row %d", t.Name, from(i))
		}
		n, err := w.Write(buffer)
		written += n
		if err != nil {
			return written, err
		}
	}
	return written, nil
}

// inOrder leaves rows where they are.
func inOrder(row int) int { return row }
