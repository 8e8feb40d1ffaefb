package scheduler

import (
	"time"

	"rollout/shared/fault"
)

// loop runs on the goroutine that owns the model, until Close.
func (s *Scheduler) loop() {
	defer close(s.done)
	for s.admit() {
		s.dropCanceled()
		if len(s.running) > 0 {
			s.step()
		}
	}
}

// admit moves waiting jobs into the batch while it has free slots. If the batch
// is empty, admit waits for a job. It returns false if the scheduler is closed.
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

// begin adds a job to the batch, unless its context is already canceled.
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

// readAll passes the logits of a job's whole prompt to its OnPromptLogits.
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

// end removes a job from the batch and reports its result to Run.
func (s *Scheduler) end(t *activeJob, err error) {
	s.remove(func(o *activeJob) bool { return o == t })
	t.times.Ended = time.Now()
	t.over <- err
}

// remove removes the selected jobs from the batch, and keeps their sequences for
// later jobs.
func (s *Scheduler) remove(which func(*activeJob) bool) {
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

// dropCanceled removes the jobs whose context is canceled from the batch.
func (s *Scheduler) dropCanceled() {
	for _, t := range s.running {
		if t.ctx.Err() != nil {
			s.remove(func(t *activeJob) bool { return t.ctx.Err() != nil })
			return
		}
	}
}

// step runs one step of the model. The model reads one token of each sequence
// whose prompt is read, and up to Config.Prefill tokens of the other prompts,
// oldest jobs first. Then each sequence whose prompt is read gets its next token.
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
			continue // wait for a later step
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
	if err != nil { // the contents of the sequences are unknown now
		err = fault.Wrap(err, "run the model")
		for _, t := range batch {
			s.end(t, err)
		}
		return
	}
	for i, t := range batch {
		s.account(t, len(s.slots[i].Tokens))
		if !t.prefilling() && t.ctx.Err() == nil {
			s.nextToken(t, logits[i])
		}
	}
}

// account records that the model has read n more tokens of a job.
func (s *Scheduler) account(t *activeJob, n int) {
	if t.prefilling() {
		t.read += n
		s.promptTokens.Add(int64(n))
	}
	t.size += n
	s.cached.Add(int64(n))
}

// nextToken asks a job for its next token, and ends the job after its last one.
func (s *Scheduler) nextToken(t *activeJob, logits []float32) {
	token, more, err := t.NextToken(logits)
	if err == nil && token != NoToken {
		t.times.Last = time.Now()
		if t.times.First.IsZero() {
			t.times.First = t.times.Last
		}
		s.newTokens.Add(1)
	}
	t.next = token
	// A sequence that fills the context has no room for another token.
	if err != nil || !more || token == NoToken || t.size >= s.model.Context() {
		s.end(t, err)
	}
}
