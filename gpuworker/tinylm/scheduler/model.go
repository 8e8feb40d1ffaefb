package scheduler

// Sequence is the state of one sequence in the model: its cache of keys and
// values.
type Sequence interface {
	// Truncate removes all tokens except the first n.
	Truncate(n int)
}

// Slot is a sequence with the tokens that a step appends to it.
type Slot struct {
	Sequence Sequence
	Tokens   []int32
}

// Model is a language model. The scheduler calls it from one goroutine.
type Model interface {
	// Vocab returns the size of the vocabulary.
	Vocab() int
	// Context returns the maximum number of tokens of a sequence.
	Context() int
	// NewSequence returns an empty sequence.
	NewSequence() Sequence
	// Step appends each slot's tokens to its sequence and writes the logits after
	// slot i's last token to logits[i], which has Vocab floats; it skips slots
	// whose logits[i] is nil. The logits must not depend on the rest of the batch,
	// nor on how a prompt is cut into steps.
	Step(slots []Slot, logits [][]float32) error
	// AllLogits reads tokens as a sequence of its own, and calls each with the
	// logits after every token.
	AllLogits(tokens []int32, each func(at int, logits []float32)) error
}
