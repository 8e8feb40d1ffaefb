package wire

import (
	"slices"

	"rollout/shared/fault"
)

// Field is a tensor of a contract.
type Field struct {
	Key   string
	DType DType
	Rank  int // number of dimensions
	// Recompute says that the field comes with envelopes that recompute from context frames,
	// and with no others.
	Recompute bool
}

// Contract lists the tensors of one kind of stage 1, in the order in which they are sent.
// The place of a field, from 1, is its number in tags.
type Contract struct {
	Name    string // Example: "latent"
	Inputs  []Field
	Outputs []Field
}

// Keys of tensors that every contract has, or that several parts know.
const (
	KeySteps   = "current_denoising_step_list"
	KeyContext = "context_frames"
)

// Latent is the contract of a generator of latents: it gets embeddings and noise, and
// returns latents.
func Latent() Contract {
	return Contract{Name: "latent",
		Inputs: []Field{
			{Key: "conditioning_embeds", DType: BF16, Rank: 3},
			{Key: "latents_in", DType: BF16, Rank: 4},
			{Key: KeySteps, DType: Int64, Rank: 1},
			{Key: KeyContext, DType: BF16, Rank: 4, Recompute: true},
		},
		Outputs: []Field{{Key: "latents_out", DType: BF16, Rank: 4}},
	}
}

// Text is the contract of a language model: it gets the tokens of several prompts with how to
// sample from each, and returns the tokens of their answers.
func Text() Contract {
	return Contract{Name: "text",
		Inputs: []Field{
			{Key: "prompt_tokens", DType: Int64, Rank: 1},
			{Key: "prompt_lengths", DType: Int64, Rank: 1},
			{Key: "requests", DType: UInt8, Rank: 1},
			{Key: KeySteps, DType: Int64, Rank: 1},
		},
		Outputs: []Field{
			{Key: "answer_tokens", DType: Int64, Rank: 1},
			{Key: "answer_lengths", DType: Int64, Rank: 1},
		},
	}
}

// field returns the number of a key in tags, from 1; 0 if the contract lacks it.
func (c Contract) field(kind Kind, key string) int {
	fields := c.Inputs
	if kind == KindResult {
		fields = c.Outputs
	}
	return 1 + slices.IndexFunc(fields, func(f Field) bool { return f.Key == key })
}

// check compares tensors with the fields: all that are required, no other, in order, with
// the type, the number of dimensions and the data that they declare.
func check(fields []Field, tensors []Tensor, recompute bool) error {
	at := 0
	for _, f := range fields {
		if f.Recompute && !recompute {
			continue
		}
		if at >= len(tensors) || tensors[at].Key != f.Key {
			return fault.New(fault.Invalid, "the tensor %s is missing or not in its place", f.Key)
		}
		t := tensors[at]
		size, err := t.Bytes()
		switch {
		case err != nil:
			return err
		case t.DType != f.DType:
			return fault.New(fault.Invalid, "the tensor %s has the type %s: it must have %s", f.Key, t.DType, f.DType)
		case len(t.Shape) != f.Rank:
			return fault.New(fault.Invalid, "the tensor %s has %d dimensions: it must have %d", f.Key, len(t.Shape), f.Rank)
		case len(t.Data) != size:
			return fault.New(fault.Invalid, "the tensor %s has %d bytes: its shape %v needs %d",
				f.Key, len(t.Data), t.Shape, size)
		}
		if i := t.notFinite(); t.DType == BF16 && i >= 0 {
			return fault.New(fault.Invalid, "the tensor %s is not finite at %d", f.Key, i)
		}
		at++
	}
	if at < len(tensors) {
		return fault.New(fault.Invalid, "the tensor %.40q does not belong into this message", tensors[at].Key)
	}
	return nil
}
