package scheduler

import (
	"time"

	"rollout/shared/fault"
)

// loop is the goroutine that owns the model.
func (s *Scheduler) loop() {
	defer close(s.done)
	for s.admit() {
		s.dropGone()
		if len(s.running) > 0 {
			s.step()
		}
	}
}

// admit gives those that wait a place in the batch, while there is one. With
// nothing to run it waits; false if the scheduler is closed.
func (s *Scheduler) admit() bool {
	for {
		if len(s.running) >= s.cfg.Slots {
			return !s.Closed()
		}
		if len(s.running) == 0 {
			select {
			case t := <-s.queue:
				s.begin(t)
				continue
			case <-s.quit:
				return false
			}
		}
		select {
		case t := <-s.queue:
			s.begin(t)
			continue
		default:
			return !s.Closed()
		}
	}
}

// begin gives a task a place, unless nobody waits for it any more.
func (s *Scheduler) begin(t *activeJob) {
	s.waiting.Add(-1)
	if t.ctx.Err() != nil {
		return
	}
	t.times.Started = time.Now()
	if n := len(s.idle); n > 0 {
		t.seq, s.idle = s.idle[n-1], s.idle[:n-1]
	} else {
		t.seq = s.model.NewSequence()
	}
	s.running = append(s.running, t)
	s.active.Store(int64(len(s.running)))
	if t.OnPromptLogits != nil {
		if err := s.readAll(t); err != nil {
			s.end(t, err)
		}
	}
}

// readAll hands a task the logits of its whole prompt.
func (s *Scheduler) readAll(t *activeJob) (err error) {
	modelErr := s.model.AllLogits(t.Prompt, func(at int, logits []float32) {
		if err == nil {
			err = t.OnPromptLogits(at, logits)
		}
	})
	if modelErr != nil {
		return modelErr
	}
	return err
}

// end ends a task: it leaves the batch, and its memory is for the next one.
func (s *Scheduler) end(t *activeJob, err error) {
	s.leave(func(o *activeJob) bool { return o == t })
	t.times.Ended = time.Now()
	t.over <- err
}

// leave takes tasks out of the batch.
func (s *Scheduler) leave(which func(*activeJob) bool) {
	kept := s.running[:0]
	for _, t := range s.running {
		if !which(t) {
			kept = append(kept, t)
			continue
		}
		s.cached.Add(-int64(t.size))
		t.seq.Truncate(0)
		s.idle = append(s.idle, t.seq)
	}
	clear(s.running[len(kept):])
	s.running = kept
	s.active.Store(int64(len(kept)))
}

// dropGone takes out whom nobody waits for any more.
func (s *Scheduler) dropGone() {
	for _, t := range s.running {
		if t.ctx.Err() != nil {
			s.leave(func(t *activeJob) bool { return t.ctx.Err() != nil })
			return
		}
	}
}

// step lets the model read one token for each sequence that answers, and as
// much of the prompts of the others as one step may: those that came first are
// first. Then each sequence whose prompt is read gets its next token.
func (s *Scheduler) step() {
	s.slots = s.slots[:0]
	budget := s.cfg.Prefill
	batch := make([]*activeJob, 0, len(s.running))
	for _, t := range s.running {
		var tokens []int32
		switch {
		case !t.prefilling():
			tokens = []int32{t.next}
		case budget > 0:
			n := min(budget, len(t.Prompt)-t.read)
			tokens = t.Prompt[t.read : t.read+n]
			budget -= n
		default:
			continue // in the next step
		}
		s.slots = append(s.slots, Slot{t.seq, tokens})
		batch = append(batch, t)
	}
	for len(s.logits) < len(batch) {
		s.logits = append(s.logits, make([]float32, s.model.Vocab()))
	}
	logits := make([][]float32, len(batch))
	for i, t := range batch {
		if t.read+len(s.slots[i].Tokens) >= len(t.Prompt) {
			logits[i] = s.logits[i]
		}
	}
	err := s.model.Step(s.slots, logits)
	s.steps.Add(1)
	s.batched.Add(int64(len(batch)))
	if err != nil { // nobody can say what the sequences hold now
		err = fault.Wrap(err, "run the model")
		for _, t := range batch {
			s.end(t, err)
		}
		return
	}
	for i, t := range batch {
		s.account(t, len(s.slots[i].Tokens))
		if !t.prefilling() && t.ctx.Err() == nil {
			s.take(t, logits[i])
		}
	}
}

// account notes what the model has read of a task.
func (s *Scheduler) account(t *activeJob, n int) {
	if t.prefilling() {
		t.read += n
		s.promptTokens.Add(int64(n))
	}
	t.size += n
	s.cached.Add(int64(n))
}

// take asks a task for its next token.
func (s *Scheduler) take(t *activeJob, logits []float32) {
	token, more, err := t.NextToken(logits)
	if err == nil && token != NoToken {
		t.times.Last = time.Now()
		if t.times.First.IsZero() {
			t.times.First = t.times.Last
		}
		s.madeTokens.Add(1)
	}
	t.next = token
	// Beyond the context there is no place for the token to be read.
	if err != nil || !more || token == NoToken || t.size >= s.model.Context() {
		s.end(t, err)
	}
}
