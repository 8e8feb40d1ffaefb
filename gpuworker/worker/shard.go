package worker

import (
	"context"
	"iter"
	"sync"
	"time"

	"rollout/shared/core/shard"
	"rollout/shared/core/share"
	"rollout/shared/fault"
	"rollout/shared/input"
	"rollout/shared/record"
	"rollout/shared/result"
)

// Shard is a claimed shard as its executor sees it: the lines of its items, the
// rows so far, and the worker's slots for requests. All methods are safe for
// concurrent use.
type Shard struct {
	Manifest record.Manifest
	Index    int // of the shard in the run
	Lines    []input.Line

	// Control is what the run's control document said when the shard was claimed.
	Control Control
	// HasAnswers says that earlier holders of the shard had requests for its items
	// answered.
	HasAnswers bool

	now       func() time.Time
	part      share.Run // of the shard's run in its pool
	slots     *slots
	limiter   *limiter
	allowance *allowance // nil in a run without a budget
	machine   machineUse
	money     money
	onFailed  func() // is called after an item failed; nil if that changes nothing
	inFlight  inFlight
	earlier   <-chan struct{} // closed when the run's shard claimed before has begun all items
	begun     *latch          // opens when this one has
	stopping  chan struct{}   // closed when nothing more may begin
	onBegin   func()
	// reportRefused tells coordinate that the run must pause.
	reportRefused func(context.Context, *RefusedError)
	findAnswers   func(context.Context) (Answers, error)
	stats         *stats
	pages         *buffers
	holder        shard.Holder
	writes        chan docWrite // changes of the document, which execute writes
	lockEngine    func(context.Context) (unlock func(), ok bool)

	mu        sync.Mutex
	suspicion suspicion
	training  training
	rows      [][]byte // by item; nil without a row
	class     []fault.Class
	page      []byte   // the end of the newest rows
	fullPages [][]byte // the rows before
	toBegin   int      // items that have not begun
	slow      bool     // they begin slowly, because the allowance has room for few at once
	open      int      // items without a row
	counts    shard.Counts
	openSaved int // open, at the last checkpoint
	// answeredAt is when the last request was answered.
	answeredAt time.Time
}

// Tokens counts the tokens of a row. Wasted ones belong to requests that led to
// no row.
type Tokens struct {
	Prompt, Completion, Wasted int64
	// Cached are those of Prompt that the server had in its cache, and Reasoning those of
	// Completion that are a model's reasoning.
	Cached, Reasoning int64
	// Unknown says that the server did not report them, and they are estimates.
	Unknown bool
	// Finish is the finish reason of an output row's answer; "" is not counted.
	Finish string
}

// Control is what an executor sees of a run's control document.
type Control struct {
	Sequence uint64 // higher by one with every change, such as a resume
	Refused  string // the RefusedError.Outcome for which the run paused last; "" if it did not
}

// newShard returns a shard whose only rows are those of copied items.
func newShard(m record.Manifest, n int, in input.Shard) *Shard {
	items := len(in.Lines)
	s := &Shard{Manifest: m, Index: n, Lines: in.Lines, part: m.Part(), stats: &stats{}, pages: &buffers{},
		rows: make([][]byte, items), class: make([]fault.Class, items), toBegin: items, open: items, openSaved: items}
	s.putCopies()
	return s
}

// PendingItems yields the items that have no row and are not suspects, in the
// given order, which must hold each item once; nil is the order of the input. It
// first waits until the run's shard claimed before has begun its items, so that the
// engine is filled in order across the shards of a run; those of several runs begin items
// by their weights. It ends early when the shard is
// stopping or ctx ends.
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

// TrackGrading counts a wait for scores of an answer among the requests in
// flight, so that a shard that stops lets it end within its budget. The caller
// must call ended once.
func (s *Shard) TrackGrading() (ended func()) {
	n := s.inFlight.begin(s.now())
	return func() { s.inFlight.end(n) }
}

// Stopping is closed when no request may begin any more. Requests in flight may
// go on until ctx ends.
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

// ReportRefused tells coordinate that the run must pause, and waits until it does: a
// shard that is released before would be sent again at once. It returns false if the run
// does not pause, as other workers have answers, or as the report was lost.
func (s *Shard) ReportRefused(ctx context.Context, err *RefusedError) (stops bool) {
	s.reportRefused(ctx, err)
	timer := time.NewTimer(awaitPause)
	defer timer.Stop()
	select {
	case <-s.stopping:
		return true
	case <-ctx.Done():
		return true
	case <-timer.C:
		return false
	}
}

// awaitPause bounds the wait for the pause of a run that a worker has asked for.
const awaitPause = 10 * time.Second

// HasRow reports whether the item has its row.
func (s *Shard) HasRow(item int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.rows[item] != nil
}

// Put gives an item its final row: an output row, or an error row if class is
// not empty. It copies the row. If the item already has a row, Put does nothing.
func (s *Shard) Put(item int, row []byte, class fault.Class, t Tokens) {
	if s.put(item, row, class, t) && class != "" && s.onFailed != nil {
		s.onFailed()
	}
}

// put is Put. It returns false if the item already has a row.
func (s *Shard) put(item int, row []byte, class fault.Class, t Tokens) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.rows[item] != nil {
		return false
	}
	s.rows[item], s.class[item] = s.storeRow(row), class
	s.open--
	s.stats.row(s.part.Run, t)
	c := &s.counts
	c.PromptTokens += t.Prompt
	c.CompletionTokens += t.Completion
	c.WastedTokens += t.Wasted
	c.CachedTokens += t.Cached
	c.ReasoningTokens += t.Reasoning
	if class == "" {
		c.OK++
		if t.Finish != "" {
			c.AddFinish(t.Finish)
		}
		if t.Unknown {
			c.UsageUnknown++
		}
		return true
	}
	c.Failed++
	if c.ByClass == nil {
		c.ByClass = map[string]int{}
	}
	c.ByClass[string(class)]++
	return true
}

// RecordRequest counts a request to the engine, for an item of the shard, that took d and
// ended with err.
func (s *Shard) RecordRequest(d time.Duration, err error) {
	s.stats.request(d, err)
	if err == nil {
		s.mu.Lock()
		s.answeredAt = s.now()
		s.mu.Unlock()
	}
}

// AddWastedTokens counts tokens of requests that led to no row. Estimated says that the
// server did not report them.
func (s *Shard) AddWastedTokens(tokens int64, estimated bool) {
	if tokens == 0 {
		return
	}
	s.stats.wasted(tokens)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.counts.WastedTokens += tokens
	if estimated {
		s.counts.WastedEstimated += tokens
	}
}

// ReportReady says whether the engine can answer (nil) or why it can't.
func (s *Shard) ReportReady(err error) { s.stats.ready(err) }

// restore adds the rows and counts of a checkpoint.
func (s *Shard) restore(rows []result.Row, c shard.Counts) {
	for _, r := range rows {
		s.rows[r.Item], s.class[r.Item] = r.Bytes, r.Class
	}
	s.open -= len(rows)
	s.toBegin -= len(rows)
	s.openSaved = s.open
	s.counts = c
}

func (s *Shard) begin() {
	s.mu.Lock()
	s.toBegin--
	s.mu.Unlock()
	s.onBegin()
}

// letOthersBegin has shards that were claimed later begin their items, and the worker
// claim more: this one's items begin slowly. There are no more such shards than slots,
// since each has a request in flight.
func (s *Shard) letOthersBegin() {
	s.mu.Lock()
	waited := s.slow
	s.slow = true
	s.mu.Unlock()
	if !waited {
		s.begun.open()
		s.onBegin()
	}
}

func (s *Shard) beginAll() {
	s.mu.Lock()
	s.toBegin = 0
	s.mu.Unlock()
	s.begun.open()
	s.onBegin()
}

// progress returns how many items the shard has, how many have a row, and when the last
// request for one of them was answered here; zero if none was.
func (s *Shard) progress() (items, rows int, answeredAt time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.rows), len(s.rows) - s.open, s.answeredAt.UTC()
}

// unbegun returns how many items have not begun and can begin soon.
func (s *Shard) unbegun() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.slow {
		return 0
	}
	return s.toBegin
}

// unanswered returns the items without a row.
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

// complete reports whether every item has its row.
func (s *Shard) complete() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.open == 0
}

// checkpointed says that a checkpoint with that many rows was saved.
func (s *Shard) checkpointed(rows int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.openSaved = len(s.rows) - rows
}

// unsaved reports whether there are rows that no checkpoint has.
func (s *Shard) unsaved() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.open < s.openSaved
}

// withWaste returns the document with all wasted tokens, what all tokens cost, and the
// machines' time: including those since the last checkpoint, and those of newer rows, which
// are given up. A nil shard, one that was not loaded, has none to add.
func (s *Shard) withWaste(d shard.Doc) shard.Doc {
	if s == nil {
		return d
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	d.Counts.WastedTokens += s.counts.Tokens() - d.Counts.Tokens()
	d.Counts.WastedEstimated = s.counts.WastedEstimated
	d.Counts.Machines, d.Counts.TokenNanoUSD = s.machine.uses(), s.money.tokens.Load()
	return d
}
