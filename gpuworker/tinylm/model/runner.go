package model

import (
	"sync"

	"rollout/gpuworker/tinylm/kernel"
	"rollout/shared/fault"
)

// Slot is one sequence's part of a step: the tokens to append to its session.
type Slot struct {
	Session *Session
	Tokens  []int32
}

// Runner runs a model forward. It uses the parameters that the model had at
// NewRunner. It owns scratch memory, so only one goroutine may use it at a time.
type Runner struct {
	model   *Model
	weights *packed
	passes  []*pass // one for each thread
}

// NewRunner returns a Runner that uses up to threads goroutines.
func NewRunner(m *Model, threads int) *Runner {
	return newRunner(m, max(threads, 1), cut{})
}

func newRunner(m *Model, threads int, cut cut) *Runner {
	r := &Runner{model: m, weights: newPacked(m.config, cut), passes: make([]*pass, threads)}
	r.weights.fill(m, cut, threads)
	for i := range r.passes {
		r.passes[i] = newPass(m, r.weights, cut)
	}
	return r
}

// Step appends each slot's tokens to its session and writes the logits after the
// slot's last token to logits[i], which has Vocab floats. If logits[i] is nil,
// Step computes no logits for that slot, as for a prompt's earlier pieces.
//
// Faults: Invalid for an unknown token, a sequence longer than the context, or a
// session that belongs to another model or is in two slots; nothing is computed
// then. Corrupt if logits are not finite. After a fault, all sessions have the
// length that they had before.
func (r *Runner) Step(slots []Slot, logits [][]float32) error {
	if err := r.check(slots, logits); err != nil {
		return err
	}
	before := make([]int, len(slots))
	total := 0
	for i, s := range slots {
		before[i] = s.Session.length
		total += len(s.Tokens)
	}
	// Sequences do not depend on each other, so each thread runs some of them
	// through all layers without synchronisation.
	errs := make([]error, len(r.passes))
	var wait sync.WaitGroup
	start, done := 0, 0
	for t, p := range r.passes {
		end := start
		for end < len(slots) && (t == len(r.passes)-1 || done*len(r.passes) < total*(t+1)) {
			done += len(slots[end].Tokens)
			end++
		}
		mine, out := slots[start:end], logits[start:end]
		start = end
		if len(mine) == 0 {
			continue
		}
		if start == len(slots) {
			errs[t] = p.run(mine, out)
			break
		}
		wait.Go(func() { errs[t] = p.run(mine, out) })
	}
	wait.Wait()
	for _, err := range errs {
		if err != nil {
			for i, s := range slots {
				s.Session.length = before[i]
			}
			return err
		}
	}
	return nil
}

// AllLogits runs one sequence and calls logits with the logits after each of its
// tokens, in order; row is valid only during the call. Faults are those of Step.
func (r *Runner) AllLogits(tokens []int32, logits func(position int, row []float32)) error {
	slot := []Slot{{Session: r.model.NewSession(), Tokens: tokens}}
	if err := r.check(slot, [][]float32{nil}); err != nil {
		return err
	}
	p := r.passes[0]
	for start := 0; start < len(tokens); start += blockRows {
		p.rows = p.rows[:0]
		for i := start; i < min(start+blockRows, len(tokens)); i++ {
			p.rows = append(p.rows, row{session: slot[0].Session, position: i, token: tokens[i], wantLogits: true})
		}
		if err := p.forward(); err != nil {
			return err
		}
		if err := p.logits(func(i int, row []float32) { logits(start+i, row) }); err != nil {
			return err
		}
	}
	return nil
}

func (r *Runner) check(slots []Slot, logits [][]float32) error {
	c := r.model.config
	if len(logits) != len(slots) {
		return fault.New(fault.Invalid, "model: %d slots but %d rows for logits", len(slots), len(logits))
	}
	seen := make(map[*Session]struct{}, len(slots))
	for i, s := range slots {
		if s.Session == nil || s.Session.model != r.model {
			return fault.New(fault.Invalid, "model: the session of slot %d belongs to another model", i)
		}
		if _, twice := seen[s.Session]; twice {
			return fault.New(fault.Invalid, "model: the session of slot %d is also in another slot", i)
		}
		seen[s.Session] = struct{}{}
		if len(s.Tokens) == 0 {
			return fault.New(fault.Invalid, "model: slot %d has no tokens", i)
		}
		if n := s.Session.length + len(s.Tokens); n > c.Context {
			return fault.New(fault.Invalid, "model: slot %d would be %d tokens long: the context is %d", i, n, c.Context)
		}
		if err := checkTokens(s.Tokens, c.Vocab); err != nil {
			return fault.Wrap(err, "model: slot %d", i)
		}
		if logits[i] != nil && len(logits[i]) != c.Vocab {
			return fault.New(fault.Invalid, "model: slot %d has room for %d logits: the vocabulary has %d",
				i, len(logits[i]), c.Vocab)
		}
	}
	return nil
}

func checkTokens(tokens []int32, vocab int) error {
	for i, t := range tokens {
		if t < 0 || int(t) >= vocab {
			return fault.New(fault.Invalid, "token %d is %d: the vocabulary has ids 0 to %d", i, t, vocab-1)
		}
	}
	return nil
}

// rows returns x as a left-hand side with n floats per row.
func rows(x []float32, n int) kernel.Rows { return kernel.Rows{Data: x, Row: n, Col: 1} }
