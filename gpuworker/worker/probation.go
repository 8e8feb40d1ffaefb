package worker

import (
	"context"
	"iter"
	"slices"

	"rollout/shared/core/interval"
	"rollout/shared/core/shard"
)

// suspicion is what a Shard knows of the items that an engine may have died
// of. The rules, and what is written down of it, are shard.Doc's.
type suspicion struct {
	doc     shard.Doc // as written last, as far as suspects go
	items   interval.Set
	crashes *crashes // of the trial under way

	unwritten []int         // suspects that the document does not have yet
	written   chan struct{} // closed when it has; nil if it has
}

// crashes is what comes of a trial.
type crashes struct {
	died  []int
	death shard.Crash
}

// change is the next state of a shard's document.
type change func(shard.Doc) (shard.Doc, error)

// note is a change that the hold shall write.
type note struct {
	change
	answer chan<- noted
}

type noted struct {
	doc shard.Doc
	err error
}

// write lets the hold write a change of what is held against the items. It is
// answered for as long as the executor runs, also while the shard stops: a
// death that nobody writes down would be repeated for ever.
func (s *Shard) write(c change) error {
	answer := make(chan noted, 1)
	s.notes <- note{c, answer}
	n := <-answer
	if n.err != nil {
		return n.err
	}
	s.mu.Lock()
	s.suspicion.doc = n.doc
	s.mu.Unlock()
	return nil
}

// suspect takes over what earlier holders found out.
func (s *Shard) suspect(d shard.Doc) {
	s.suspicion.doc = d.ClearSuspects(s.unanswered())
	s.suspicion.items = s.suspicion.doc.Suspects.Clone()
	s.mu.Lock()
	s.left -= s.suspicion.items.Len()
	s.mu.Unlock()
}

// IsSuspect reports whether the item waits for a trial: it is not asked outside
// one.
func (s *Shard) IsSuspect(item int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.suspicion.items.Has(item)
}

// RecordCrash says that an engine died while it had a request of the item. Outside a
// trial the item is a suspect from now on, and nothing more of the shard is
// asked before its document says so.
func (s *Shard) RecordCrash(item int, d shard.Crash) {
	if done := s.accuse(item, d); done != nil {
		s.record(done)
	}
}

// accuse notes the death. It returns what to close once the document has the
// suspects; nil if somebody else sees to that.
func (s *Shard) accuse(item int, d shard.Crash) chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	u := &s.suspicion
	switch {
	case s.rows[item] != nil:
		return nil
	case u.crashes != nil:
		if !slices.Contains(u.crashes.died, item) {
			u.crashes.died = append(u.crashes.died, item)
		}
		u.crashes.death = d
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

// record writes the new suspects down, with those that come meanwhile: a death
// of the engine breaks all requests at once.
func (s *Shard) record(done chan struct{}) {
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

// recorded waits until the document has all suspects; false if the shard stops
// first.
func (s *Shard) recorded(ctx context.Context) bool {
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

// ProbationRequests yields what to do about the suspects, until there are none: the items
// to be asked while nothing else of this worker is in flight, or the one that
// is poison and gets its error row. All other items must have theirs. What
// came of a trial is told by Put and Died before the next.
func (s *Shard) ProbationRequests(ctx context.Context) iter.Seq[shard.Probation] {
	return func(yield func(shard.Probation) bool) {
		if len(s.next().Items) == 0 || s.Stopped() {
			return
		}
		over, ok := s.lockEngine(ctx)
		if !ok {
			return
		}
		defer over()
		if !s.slots.take(ctx, s.stopping, true) {
			return
		}
		defer s.slots.leave(true)
		for !s.Stopped() && ctx.Err() == nil {
			t := s.next()
			if len(t.Items) == 0 {
				return
			}
			if t.Poison {
				if !yield(t) || !s.HasRow(t.Items[0]) {
					return
				}
				continue
			}
			if !s.runProbation(t, yield) {
				return
			}
		}
	}
}

// next is the next trial, by what the document says and who was answered
// since.
func (s *Shard) next() shard.Probation {
	s.mu.Lock()
	d := s.suspicion.doc
	s.mu.Unlock()
	return d.ClearSuspects(s.unanswered()).NextProbation(s.slots.size())
}

// runProbation has one trial: names its items, lets them be asked, and writes down what
// came of it. false ends the trials.
func (s *Shard) runProbation(t shard.Probation, yield func(shard.Probation) bool) bool {
	err := s.write(func(d shard.Doc) (shard.Doc, error) {
		return d.ClearSuspects(s.unanswered()).StartProbation(s.holder, t.Items)
	})
	if err != nil {
		return false
	}
	var came crashes
	s.directCrashes(&came)
	flight := s.flights.begin(s.now())
	more := yield(t)
	s.flights.end(flight)
	s.directCrashes(nil)
	if len(came.died) > 0 {
		err = s.write(func(d shard.Doc) (shard.Doc, error) { return d.RecordCrash(s.holder, came.died, came.death) })
	}
	return more && err == nil
}

// Crashes is how often an engine died in the item's trials.
func (s *Shard) Crashes(item int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	d := s.suspicion.doc.Crashes[item]
	return d.Alone + d.Shared
}

// directCrashes says where deaths go that come from now on.
func (s *Shard) directCrashes(o *crashes) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.suspicion.crashes = o
}

// unanswered are the items without a row.
func (s *Shard) unanswered() []int {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]int, 0, s.open)
	for i, b := range s.rows {
		if b == nil {
			out = append(out, i)
		}
	}
	return out
}
