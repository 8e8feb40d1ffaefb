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

// Model is a model to export.
type Model struct {
	Name        string // Example: "rollout/tiny"
	Description string // one line; optional
	License     string // SPDX name; "" if unknown. Example: "Apache-2.0"
	Digest      string // digest of the weights file, as the model's revision; "" if unknown
	Config      model.Config
	Tensors     []model.Tensor // with Hugging Face's names and layout, as Model.Tensors of package model returns them
	Tokenizer   *tokenizer.Tokenizer
	// RewardHead is the score head of a reward model: the score is its dot product
	// with the last token's state. It is nil for other models.
	RewardHead []float32
	// ChatTurns says that the model was trained on chats with the tokenizer's role
	// tokens. Otherwise the chat template joins the messages as plain text.
	ChatTurns bool
}

// ScoreTensor is the tensor name of a reward model's score head.
const ScoreTensor = "score.weight"

// tensors returns all tensors, including the score head.
func (m *Model) tensors() []model.Tensor {
	if m.RewardHead == nil {
		return m.Tensors
	}
	score := model.Tensor{Name: ScoreTensor, Shape: []int{1, len(m.RewardHead)}, Data: m.RewardHead}
	return append(slices.Clip(m.Tensors), score)
}

// check returns a fault if the model is inconsistent, whatever the format.
func (m *Model) check() error {
	if n := m.Tokenizer.Vocab(); n > m.Config.Vocab {
		return fault.New(fault.Invalid, "export %s: the tokenizer has %d tokens, the model only %d",
			m.Name, n, m.Config.Vocab)
	}
	if m.RewardHead != nil && len(m.RewardHead) != m.Config.Width {
		return fault.New(fault.Corrupt, "export %s: the score head has %d values, the model's width is %d",
			m.Name, len(m.RewardHead), m.Config.Width)
	}
	for _, t := range m.tensors() {
		values := 1
		for _, n := range t.Shape {
			values *= n
		}
		if values != len(t.Data) || len(t.Shape) == 0 || len(t.Shape) > 2 {
			return fault.New(fault.Corrupt, "export %s: tensor %s has %d values, its shape is %v",
				m.Name, t.Name, len(t.Data), t.Shape)
		}
	}
	return nil
}

// token is an entry of an exported vocabulary.
type token struct {
	text string // as tokenizer.ByteLevel spells it, or a special token's name
	kind int32  // ggml's token type
}

// ggml's token types.
const (
	tokenNormal  = 1
	tokenControl = 3 // text never encodes to it
	tokenUnused  = 5
)

// tokens returns the tokenizer's tokens, and a placeholder for each further id of
// the model.
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

// merges returns the merges in order of rank, as pairs of tokens that
// tokenizer.ByteLevel spells.
func (m *Model) merges() []string {
	text := func(id int32) string { return tokenizer.ByteLevel(m.Tokenizer.Piece(id)) }
	var out []string
	for _, pair := range m.Tokenizer.Merges() {
		out = append(out, text(pair.Left)+" "+text(pair.Right))
	}
	return out
}

// encodingOf returns the encoding of a tensor: F32 for norms, e for matrices.
func encodingOf(t model.Tensor, e Encoding) Encoding {
	if len(t.Shape) < 2 {
		return F32
	}
	return e
}

// writeTensor writes a tensor row by row and returns the number of bytes written.
// Row i of the output is the tensor's row from(i).
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

// inOrder keeps the order of rows.
func inOrder(row int) int { return row }
