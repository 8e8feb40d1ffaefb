package worker

import (
	"context"
	"iter"
	"sync"
	"time"

	"rollout/shared/core/shard"
	"rollout/shared/fault"
	"rollout/shared/input"
	"rollout/shared/record"
	"rollout/shared/result"
)

// Shard is a claimed shard as an executor sees it: its lines, where to put
// rows, and the worker's places for requests. Safe for concurrent use.
type Shard struct {
	Manifest record.Manifest
	Index    int
	Lines    []input.Line

	now        func() time.Time
	slots      *slots
	flights    flights
	earlier    <-chan struct{} // closed when the shard before has begun all items
	begun      *latch          // opened when this one has
	stopping   chan struct{}   // closed when nothing new may be begun
	onBegin    func()
	stats      *stats
	pages      *buffers // where pages come from and go to
	holder     shard.Holder
	notes      chan note // what the hold shall write
	lockEngine func(context.Context) (over func(), ok bool)

	mu        sync.Mutex
	suspicion suspicion
	training  training
	rows      [][]byte
	page      []byte   // where new rows are kept, many side by side
	full      [][]byte // pages before it
	class     []fault.Class
	left      int // items not begun yet
	open      int // items without a row
	counts    shard.Counts
	saved     int // open, at the last checkpoint
}

// PendingItems yields the items that have no row yet and are no suspects: in the given
// order, which has each item once, or as they are in the input if that is nil.
// It waits until earlier shards of the worker have begun theirs, so that the
// engine is filled in order across borders, and ends early when the shard is
// stopping.
func (s *Shard) PendingItems(ctx context.Context, order []int) iter.Seq[int] {
	return func(yield func(int) bool) {
		defer s.beginAll()
		select {
		case <-s.earlier:
		case <-s.stopping:
			return
		case <-ctx.Done():
			return
		}
		for i := range s.Lines {
			if order != nil {
				i = order[i]
			}
			if s.HasRow(i) || s.IsSuspect(i) {
				continue
			}
			if s.Stopped() || ctx.Err() != nil {
				return
			}
			if !yield(i) {
				return
			}
			s.begin()
		}
	}
}

// Slot waits for a place for one request; false when the shard is stopping.
func (s *Shard) Slot(ctx context.Context) (Place, bool) {
	if s.Stopped() || !s.slots.take(ctx, s.stopping, false) {
		return Place{}, false
	}
	if !s.recorded(ctx) {
		s.slots.leave(false)
		return Place{}, false
	}
	p := Place{s, s.flights.begin(s.now())}
	if s.Stopped() { // by one who may not have seen that this one was to begin
		p.Release()
		return Place{}, false
	}
	return p, true
}

// Place is a place for one request of a shard.
type Place struct {
	s      *Shard
	flight int
}

// Release gives the place back, once: the request is over.
func (p Place) Release() {
	p.s.flights.end(p.flight)
	p.s.slots.leave(false)
}

// Stopping is closed when no request may be begun any more. Requests in
// flight go on until ctx ends.
func (s *Shard) Stopping() <-chan struct{} { return s.stopping }

// Stopped reports whether Stopping is closed.
func (s *Shard) Stopped() bool {
	select {
	case <-s.stopping:
		return true
	default:
		return false
	}
}

// HasRow reports whether the item has its row.
func (s *Shard) HasRow(item int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.rows[item] != nil
}

// Put gives an item its final row: an output row, or an error row if class is
// not empty. The first row of an item stands. The row is copied. Tokens are
// what the row took; wasted ones led to no row.
func (s *Shard) Put(item int, row []byte, class fault.Class, t Tokens) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.rows[item] != nil {
		return
	}
	s.rows[item], s.class[item] = s.keepBytes(row), class
	s.open--
	s.stats.row(t)
	c := &s.counts
	c.PromptTokens += t.Prompt
	c.CompletionTokens += t.Completion
	c.WastedTokens += t.Wasted
	if class == "" {
		c.OK++
		return
	}
	c.Failed++
	if c.ByClass == nil {
		c.ByClass = map[string]int{}
	}
	c.ByClass[string(class)]++
}

// rowPage is how many bytes of rows are kept side by side.
const rowPage = 64 << 10

// keepBytes copies a row to where it may stay.
func (s *Shard) keepBytes(row []byte) []byte {
	n := len(s.page)
	if n+len(row) > cap(s.page) {
		s.full = append(s.full, s.page)
		s.page, n = s.pages.get(max(rowPage, len(row))), 0
	}
	s.page = append(s.page, row...)
	return s.page[n:len(s.page):len(s.page)]
}

// forget gives up the rows, when a result has them and the executor has ended:
// their pages are used again, by another shard.
func (s *Shard) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.rows)
	for _, page := range append(s.full, s.page) {
		s.pages.put(page)
	}
	s.page, s.full = nil, nil
}

// Asked says that a request took d at the engine and ended with err.
func (s *Shard) Asked(d time.Duration, err error) { s.stats.asked(d, err) }

// AddWastedTokens counts tokens that led to no row, and never will.
func (s *Shard) AddWastedTokens(tokens int64) {
	if tokens == 0 {
		return
	}
	s.stats.wasted(tokens)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.counts.WastedTokens += tokens
}

// ReportReady says whether the engine can answer, nil, or why not.
func (s *Shard) ReportReady(err error) { s.stats.ready(err) }

// Tokens counts what a row took.
type Tokens struct{ Prompt, Completion, Wasted int64 }

// newShard returns a shard without rows but those of copies.
func newShard(m record.Manifest, n int, in input.Shard) *Shard {
	s := &Shard{Manifest: m, Index: n, Lines: in.Lines,
		rows: make([][]byte, len(in.Lines)), class: make([]fault.Class, len(in.Lines)), left: len(in.Lines), open: len(in.Lines), saved: len(in.Lines), stats: &stats{}, pages: &buffers{}}
	s.copies()
	return s
}

// restore puts the rows of a checkpoint in.
func (s *Shard) restore(rows []result.Row, c shard.Counts) {
	for _, r := range rows {
		s.rows[r.Item], s.class[r.Item] = r.Bytes, r.Class
	}
	s.open -= len(rows)
	s.left -= len(rows)
	s.saved = s.open
	s.counts = c
}

func (s *Shard) begin() {
	s.mu.Lock()
	s.left--
	s.mu.Unlock()
	s.onBegin()
}

func (s *Shard) beginAll() {
	s.mu.Lock()
	s.left = 0
	s.mu.Unlock()
	s.begun.open()
	s.onBegin()
}

// progress is how many items the shard has, and how many of them have a row.
func (s *Shard) progress() (items, rows int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.rows), len(s.rows) - s.open
}

// unbegun is how many items wait to be begun.
func (s *Shard) unbegun() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.left
}

// complete reports whether every item has its row.
func (s *Shard) complete() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.open == 0
}

// final returns the rows there are, in item order.
func (s *Shard) final() (rows []result.Row, c shard.Counts) {
	s.mu.Lock()
	defer s.mu.Unlock()
	rows = make([]result.Row, 0, len(s.rows)-s.open)
	for i, b := range s.rows {
		if b != nil {
			rows = append(rows, result.Row{Item: i, Class: s.class[i], Bytes: b, Copy: s.copied(i)})
		}
	}
	c = s.counts
	if c.ByClass != nil {
		c.ByClass = map[string]int{}
		for k, n := range s.counts.ByClass {
			c.ByClass[k] = n
		}
	}
	return rows, c
}

// withWaste is the document with all tokens that were wasted, also since the
// last checkpoint.
func (s *Shard) withWaste(d shard.Doc) shard.Doc {
	if s == nil {
		return d
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	d.Counts.WastedTokens = s.counts.WastedTokens
	return d
}

// keep says that a checkpoint holds that many rows.
func (s *Shard) keep(rows int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.saved = len(s.rows) - rows
}

// unsaved reports whether there are rows that no checkpoint holds.
func (s *Shard) unsaved() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.open < s.saved
}
