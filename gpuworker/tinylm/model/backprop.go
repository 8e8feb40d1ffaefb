package model

import (
	"rollout/gpuworker/tinylm/kernel"
	"rollout/shared/fault"
)

// Backprop computes losses, rewards and their gradients. Each call reads the
// parameters as they are then. A Backprop owns scratch memory, so only one
// goroutine may use it at a time.
//
// It processes each group of sequences in two phases. In the first phase a
// thread takes whole sequences forward and backward, down to the embedding, and
// writes the inputs and output gradients of every matrix to a tape. In the
// second phase a thread takes ranges of rows of the weights and adds up their
// gradients over the tape, token by token. The threads synchronise after each
// phase, and one thread computes each sum.
type Backprop struct {
	model   *Model
	forward *packed
	back    *packedBackward
	threads []*backpropThread
	tape    tape
	input   []float32 // gradient of the embedded tokens of a whole batch [tokens, Width]
	losses  []float64 // one for each counted target of a group
}

// groupTokens is the minimum number of tokens per thread in a group, except in
// the last group of a batch. It makes the cost of two synchronisations small.
const groupTokens = 512

// NewBackprop returns a Backprop that uses up to threads goroutines.
func NewBackprop(m *Model, threads int) *Backprop {
	threads = max(threads, 1)
	b := &Backprop{model: m, forward: newPacked(m.config, cut{}), threads: make([]*backpropThread, threads)}
	for i := range b.threads {
		b.threads[i] = newBackpropThread(b)
	}
	return b
}

// Loss returns the sum of -ln p(target) over the counted targets of the batch,
// and their number. If g is not nil, Loss also adds scale times the gradient of
// that sum to g; if g is nil, it runs only forward.
//
// A batch may be passed in parts, in order. The gradients then have the same
// bits as with one call, except those of the embedding, which the output head
// shares: each call adds the head's part of the embedding first.
//
// Faults: Invalid for a bad sequence, which the message names; nothing is
// computed then. Corrupt if the loss is not finite; the contents of g are then
// undefined.
func (b *Backprop) Loss(batch []Sequence, scale float32, g *Gradients) (sum float64, counted int, err error) {
	if err := b.check(batch, g, true); err != nil {
		return 0, 0, err
	}
	b.refresh(g != nil)
	resize(&b.input, countTokens(batch)*b.model.config.Width)
	first := 0
	for group := range b.groups(batch) {
		rows, heads := layOut(group, Sequence.counted)
		b.tape.resize(b.model.config, rows.total, heads.total, g != nil)
		resize64(&b.losses, heads.total)
		kernel.Parallel(len(b.threads), len(group), func(thread, i int) {
			w := b.threads[thread]
			w.place(group[i], rows.at[i], heads.at[i], first+rows.at[i], g != nil)
			w.run()
			w.losses(scale)
			if g != nil {
				w.backpropagate()
			}
		})
		for _, l := range b.losses {
			sum += l
		}
		if sum-sum != 0 {
			return 0, 0, fault.New(fault.Corrupt, "model: the loss is %v: the weights are damaged or training diverged: "+
				"try a lower learning rate or gradient clipping", sum)
		}
		counted += heads.total
		if g != nil {
			b.accumulate(rows.total, heads.total, g)
		}
		first += rows.total
	}
	if g != nil {
		b.embed(batch, g)
	}
	return sum, counted, nil
}

func (b *Backprop) check(batch []Sequence, g *Gradients, targets bool) error {
	for i, q := range batch {
		if err := q.check(b.model.config, targets); err != nil {
			return fault.Wrap(err, "model: sequence %d of the batch", i)
		}
	}
	if g != nil && len(g.flat) != len(b.model.flat) {
		return fault.New(fault.Invalid, "model: %d gradients for %d parameters: they belong to another model",
			len(g.flat), len(b.model.flat))
	}
	return nil
}

// refresh packs the current parameters.
func (b *Backprop) refresh(backward bool) {
	b.forward.fill(b.model, cut{}, len(b.threads))
	if !backward {
		return
	}
	if b.back == nil {
		b.back = newPackedBackward(b.model.config)
	}
	b.back.fill(b.model, len(b.threads))
}

// groups cuts a batch into groups of consecutive sequences with enough tokens to
// keep all threads busy. The cuts do not change the bits of results.
func (b *Backprop) groups(batch []Sequence) func(func([]Sequence) bool) {
	enough := groupTokens
	for _, q := range batch {
		enough = max(enough, len(q.Tokens))
	}
	enough *= len(b.threads)
	return func(yield func([]Sequence) bool) {
		start, tokens := 0, 0
		for i, q := range batch {
			tokens += len(q.Tokens)
			if tokens >= enough || i == len(batch)-1 {
				if !yield(batch[start : i+1]) {
					return
				}
				start, tokens = i+1, 0
			}
		}
	}
}

// layout holds the index of the first row of each sequence, and the number of
// rows of all.
type layout struct {
	at    []int
	total int
}

// layOut lays out sequences one after the other. rows has one row for each token;
// head has, for each sequence, the number of rows that heads returns: those that
// reach the output head.
func layOut(group []Sequence, heads func(Sequence) int) (rows, head layout) {
	for _, q := range group {
		rows.at, head.at = append(rows.at, rows.total), append(head.at, head.total)
		rows.total += len(q.Tokens)
		head.total += heads(q)
	}
	return rows, head
}

func resize64(x *[]float64, n int) {
	if cap(*x) < n {
		*x = make([]float64, n)
	}
	*x = (*x)[:n]
}
