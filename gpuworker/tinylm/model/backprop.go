package model

import (
	"rollout/gpuworker/tinylm/kernel"
	"rollout/shared/fault"
)

// Backprop computes losses, rewards and their gradients. It has scratch of its
// own, so one goroutine uses it at a time; it reads the parameters anew at each
// call.
//
// A group of sequences goes through in two phases. In the first each thread
// takes whole sequences forward and backward, down to the embedding, and puts
// the inputs and output gradients of every matrix on a tape; in the second each
// takes ranges of rows of the weights and adds up their gradients over the
// tape, token by token. Threads meet twice a group, and no sum is ever split.
type Backprop struct {
	model   *Model
	forward *packed
	back    *packedBackward
	threads []*backpropThread
	tape    tape
	input   []float32 // gradient of the embedded tokens of a whole batch [tokens, Width]
	losses  []float64 // of the counted targets of a group
}

// groupTokens is the least number of tokens a thread that make a group, if the
// batch has so many: enough work for two meetings.
const groupTokens = 512

// NewBackprop makes a Backprop of up to threads goroutines.
func NewBackprop(m *Model, threads int) *Backprop {
	threads = max(threads, 1)
	b := &Backprop{model: m, forward: newPacked(m.config), threads: make([]*backpropThread, threads)}
	for i := range b.threads {
		b.threads[i] = newBackpropThread(b)
	}
	return b
}

// Loss is the sum of -ln p(target) over the targets that count, and their
// number. With g it adds scale times the gradient of that sum to g; without, it
// goes forward only. Calling it for parts of a batch, in order, adds up the
// same terms in the same order for all parameters but the embedding, which the
// head and the input share: there each call adds the head's part first.
//
// Faults: Invalid for a bad sequence, naming it, before anything is computed;
// Corrupt if the loss is not a finite number: then g is of no use.
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
			return 0, 0, fault.New(fault.Corrupt, "model: the loss is %v: the weights are damaged or training diverged: try a lower learning rate or gradient clipping", sum)
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
		return fault.New(fault.Invalid, "model: %d gradients for %d parameters: they are another model's", len(g.flat), len(b.model.flat))
	}
	return nil
}

// refresh packs the parameters as they are now.
func (b *Backprop) refresh(backward bool) {
	b.forward.fill(b.model, len(b.threads))
	if !backward {
		return
	}
	if b.back == nil {
		b.back = newPackedBackward(b.model.config)
	}
	b.back.fill(b.model, len(b.threads))
}

// groups cuts a batch into runs of sequences with enough tokens to keep the
// threads busy. Where it cuts changes no bits.
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

// layout says where each sequence's rows begin.
type layout struct {
	at    []int
	total int
}

// layOut puts sequences one after the other: their tokens, and their rows that
// reach the head.
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
