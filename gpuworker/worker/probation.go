package worker

import (
	"context"
	"iter"
	"slices"

	"rollout/shared/core/interval"
	"rollout/shared/core/shard"
)

// suspicion is what a Shard knows of its suspects: items that an engine may have
// crashed on. The rules, and what of them is stored, belong to shard.Doc.
type suspicion struct {
	doc     shard.Doc // as written last, as far as suspects go
	items   interval.Set
	crashes *crashes // of the probation request under way; nil outside of one

	unwritten []int         // suspects that the document does not have yet
	written   chan struct{} // closed when it has them; nil if it has
}

// crashes records what happened during one probation request.
type crashes struct {
	items []int // whose requests ended with a crash
	crash shard.Crash
}

// change computes the next state of a shard's document.
type change func(shard.Doc) (shard.Doc, error)

// docWrite asks the goroutine that holds the shard to write a change.
type docWrite struct {
	change
	reply chan<- docWritten
}

// docWritten is the result of a docWrite.
type docWritten struct {
	doc shard.Doc
	err error
}

// write has a change of the document written. It is served as long as the
// executor runs, also while the shard stops: a crash that is not recorded would
// be repeated forever.
func (s *Shard) write(c change) error {
	reply := make(chan docWritten, 1)
	s.writes <- docWrite{c, reply}
	got := <-reply
	if got.err != nil {
		return got.err
	}
	s.mu.Lock()
	s.suspicion.doc = got.doc
	s.mu.Unlock()
	return nil
}

// loadSuspects takes over the suspects that earlier holders recorded.
func (s *Shard) loadSuspects(d shard.Doc) {
	s.suspicion.doc = d.ClearSuspects(s.unanswered())
	s.suspicion.items = s.suspicion.doc.Suspects.Clone()
	s.mu.Lock()
	s.toBegin -= s.suspicion.items.Len()
	s.mu.Unlock()
}

// IsSuspect reports whether the item is a suspect. Suspects are asked only
// through ProbationRequests.
func (s *Shard) IsSuspect(item int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.suspicion.items.Has(item)
}

// RecordCrash says that an engine crashed while it had a request of the item.
// Outside of a probation request the item becomes a suspect, and the shard gets
// no slot until its document says so.
func (s *Shard) RecordCrash(item int, d shard.Crash) {
	if done := s.addSuspect(item, d); done != nil {
		s.writeSuspects(done)
	}
}

// addSuspect records the crash in memory. It returns the channel to close once
// the document has the suspects, or nil if there is nothing to write or another
// goroutine writes already.
func (s *Shard) addSuspect(item int, d shard.Crash) chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	u := &s.suspicion
	switch {
	case s.rows[item] != nil:
		return nil
	case u.crashes != nil:
		if !slices.Contains(u.crashes.items, item) {
			u.crashes.items = append(u.crashes.items, item)
		}
		u.crashes.crash = d
		return nil
	case !u.items.Add(item):
		return nil
	}
	u.unwritten = append(u.unwritten, item)
	if u.written != nil {
		return nil
	}
	u.written = make(chan struct{})
	return u.written
}

// writeSuspects writes the new suspects, including those added during the write:
// a crash of the engine ends all its requests at once.
func (s *Shard) writeSuspects(done chan struct{}) {
	defer close(done)
	for {
		s.mu.Lock()
		items := s.suspicion.unwritten
		s.suspicion.unwritten = nil
		if len(items) == 0 {
			s.suspicion.written = nil
		}
		s.mu.Unlock()
		if len(items) == 0 {
			return
		}
		if s.write(func(d shard.Doc) (shard.Doc, error) { return d.AddSuspects(s.holder, items...) }) != nil {
			return // the shard is lost, or its worker ends
		}
	}
}

// awaitSuspectsWritten waits until the document has all suspects. It returns
// false if the shard stops or ctx ends first.
func (s *Shard) awaitSuspectsWritten(ctx context.Context) bool {
	s.mu.Lock()
	written := s.suspicion.written
	s.mu.Unlock()
	if written == nil {
		return true
	}
	select {
	case <-written:
		return true
	case <-s.stopping:
	case <-ctx.Done():
	}
	return false
}

// ProbationRequests yields what to do about the suspects until none is left:
// items to ask while this worker has nothing else in flight, or one item that is
// poison and gets its error row. Call it when all other items have begun. The
// caller reports the outcome of each request by Put and RecordCrash before it
// takes the next one.
func (s *Shard) ProbationRequests(ctx context.Context) iter.Seq[shard.Probation] {
	return func(yield func(shard.Probation) bool) {
		if len(s.nextProbation().Items) == 0 || s.Stopped() {
			return
		}
		unlock, ok := s.lockEngine(ctx)
		if !ok {
			return
		}
		defer unlock()
		if !s.slots.acquire(ctx, s.stopping, s.claimant(), true) {
			return
		}
		defer s.slots.release(true)
		s.machine.begin(s.now())
		defer s.machine.end()
		for !s.Stopped() && ctx.Err() == nil {
			p := s.nextProbation()
			if len(p.Items) == 0 {
				return
			}
			if p.Poison {
				if !yield(p) || !s.HasRow(p.Items[0]) {
					return
				}
				continue
			}
			if !s.runProbation(p, yield) {
				return
			}
		}
	}
}

// nextProbation returns the next request, by the document and the rows since.
func (s *Shard) nextProbation() shard.Probation {
	s.mu.Lock()
	d := s.suspicion.doc
	s.mu.Unlock()
	return d.ClearSuspects(s.unanswered()).NextProbation(s.slots.size())
}

// runProbation makes one probation request: it names the items in the document,
// yields the request, and writes the crashes. False ends the sequence.
func (s *Shard) runProbation(p shard.Probation, yield func(shard.Probation) bool) bool {
	err := s.write(func(d shard.Doc) (shard.Doc, error) {
		return d.ClearSuspects(s.unanswered()).StartProbation(s.holder, p.Items)
	})
	if err != nil {
		return false
	}
	var met crashes
	s.directCrashes(&met)
	request := s.inFlight.begin(s.now())
	more := yield(p)
	s.inFlight.end(request)
	s.directCrashes(nil)
	if len(met.items) > 0 {
		err = s.write(func(d shard.Doc) (shard.Doc, error) { return d.RecordCrash(s.holder, met.items, met.crash) })
	}
	return more && err == nil
}

// Crashes returns how many of the item's probation requests ended with a crash.
func (s *Shard) Crashes(item int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	d := s.suspicion.doc.Crashes[item]
	return d.Alone + d.Shared
}

// directCrashes directs later crashes to c. Nil ends the probation request:
// later crashes make suspects again.
func (s *Shard) directCrashes(c *crashes) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.suspicion.crashes = c
}
