package worker

import (
	"context"
	"iter"
	"slices"

	"rollout/shared/engine/interval"
	"rollout/shared/engine/shard"
)

// suspicion is what a Shard knows of the items that an engine may have died
// of. The rules, and what is written down of it, are shard.Doc's.
type suspicion struct {
	doc   shard.Doc // as written last, as far as suspects go
	items interval.Set
	trial *outcome // of the trial under way

	unwritten []int         // suspects that the document does not have yet
	written   chan struct{} // closed when it has; nil if it has
}

// outcome is what comes of a trial.
type outcome struct {
	died  []int
	death shard.Death
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
	s.suspicion.doc = d.Clear(s.unanswered())
	s.suspicion.items = s.suspicion.doc.Suspects.Clone()
	s.mu.Lock()
	s.left -= s.suspicion.items.Len()
	s.mu.Unlock()
}

// Suspect reports whether the item waits for a trial: it is not asked outside
// one.
func (s *Shard) Suspect(item int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.suspicion.items.Has(item)
}

// Died says that an engine died while it had a request of the item. Outside a
// trial the item is a suspect from now on, and nothing more of the shard is
// asked before its document says so.
func (s *Shard) Died(item int, d shard.Death) {
	if done := s.accuse(item, d); done != nil {
		s.record(done)
	}
}

// accuse notes the death. It returns what to close once the document has the
// suspects; nil if somebody else sees to that.
func (s *Shard) accuse(item int, d shard.Death) chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	u := &s.suspicion
	switch {
	case s.rows[item] != nil:
		return nil
	case u.trial != nil:
		if !slices.Contains(u.trial.died, item) {
			u.trial.died = append(u.trial.died, item)
		}
		u.trial.death = d
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
		if s.write(func(d shard.Doc) (shard.Doc, error) { return d.Suspect(s.holder, items...) }) != nil {
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

// Trials yields what to do about the suspects, until there are none: the items
// to be asked while nothing else of this worker is in flight, or the one that
// is poison and gets its error row. All other items must have theirs. What
// came of a trial is told by Put and Died before the next.
func (s *Shard) Trials(ctx context.Context) iter.Seq[shard.Trial] {
	return func(yield func(shard.Trial) bool) {
		if len(s.next().Items) == 0 || s.Stopped() {
			return
		}
		over, ok := s.turn(ctx)
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
				if !yield(t) || !s.Has(t.Items[0]) {
					return
				}
				continue
			}
			if !s.try(t, yield) {
				return
			}
		}
	}
}

// next is the next trial, by what the document says and who was answered
// since.
func (s *Shard) next() shard.Trial {
	s.mu.Lock()
	d := s.suspicion.doc
	s.mu.Unlock()
	return d.Clear(s.unanswered()).Next(s.slots.size())
}

// try has one trial: names its items, lets them be asked, and writes down what
// came of it. false ends the trials.
func (s *Shard) try(t shard.Trial, yield func(shard.Trial) bool) bool {
	err := s.write(func(d shard.Doc) (shard.Doc, error) {
		return d.Clear(s.unanswered()).Name(s.holder, t.Items)
	})
	if err != nil {
		return false
	}
	var came outcome
	s.under(&came)
	flight := s.flights.begin(s.now())
	more := yield(t)
	s.flights.end(flight)
	s.under(nil)
	if len(came.died) > 0 {
		err = s.write(func(d shard.Doc) (shard.Doc, error) { return d.Died(s.holder, came.died, came.death) })
	}
	return more && err == nil
}

// Deaths is how often an engine died in the item's trials.
func (s *Shard) Deaths(item int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	d := s.suspicion.doc.Deaths[item]
	return d.Alone + d.Shared
}

// under says where deaths go that come from now on.
func (s *Shard) under(o *outcome) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.suspicion.trial = o
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
