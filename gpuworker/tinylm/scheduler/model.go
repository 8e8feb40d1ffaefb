package scheduler

// Sequence is one sequence's memory in the model, its cache of keys and
// values.
type Sequence interface {
	Truncate(n int) // forgets all but the first n tokens
}

// Slot asks the model to read tokens that go on a sequence.
type Slot struct {
	Sequence Sequence
	Tokens   []int32
}

// Model is what the scheduler runs; from one goroutine alone.
type Model interface {
	// Vocab is the number of tokens, Context that of a sequence at most.
	Vocab() int
	Context() int
	// NewSequence returns an empty sequence.
	NewSequence() Sequence
	// Step reads each slot's tokens. logits[i], of Vocab numbers, gets those
	// after slot i's last token, or is nil if nobody wants them: the same
	// whatever else is in the batch and however a prompt is cut into steps.
	Step(slots []Slot, logits [][]float32) error
	// AllLogits calls each with the logits after every token of a sequence of its
	// own.
	AllLogits(tokens []int32, each func(at int, logits []float32)) error
}
