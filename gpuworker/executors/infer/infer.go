// Package infer is the executor of batch runs: one item, n requests, one row.
//
// It builds each request from the item's line, asks the engine, tells an
// item's own faults from the engine's, and renders the row in the dialect of
// the input. Requests and rows are pure functions of line, config and answer
// (I10). It never claims, commits or retries a shard.
package infer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"rollout/gpuworker/engine"
	"rollout/gpuworker/worker"
	"rollout/shared/clock"
	"rollout/shared/core/identity"
	"rollout/shared/dialect"
	"rollout/shared/fault"
	"rollout/shared/input"
)

// Config is an executor's settings.
type Config struct {
	Engine engine.Engine
	Clock  clock.Clock
	Log    *slog.Logger
	// ProgressTimeout is the longest silence of a request before it counts as hung.
	ProgressTimeout time.Duration
	// RequestTimeout is the longest a request may take at all; 0 is no limit.
	RequestTimeout time.Duration
	// MaxOutage is how long the engine may be down before shards go back.
	MaxOutage time.Duration
	// Model, if set, is the id of the only model that the engine has: runs of
	// another one, or another revision, are refused.
	Model identity.ContentID
	// OnItem is told of every item that got its row, from many goroutines at
	// once; may be nil. The row may still be lost with the worker.
	OnItem func(Item)
}

// Item is an item that got its row.
type Item struct {
	Run   identity.RunID
	Shard int
	Item  uint64
	ID    string
	Class fault.Class // "" for an output row
}

// Executor answers shards. Safe for concurrent use.
type Executor struct {
	cfg     Config
	refusal refusal
	crew    *requesters
}

// New returns an executor over an engine.
func New(cfg Config) *Executor { return &Executor{cfg: cfg, crew: newRequesters()} }

// Ready reports whether the engine can answer.
func (x *Executor) Ready(ctx context.Context) error {
	if err := x.refusal.away(x.cfg.Clock.Now()); err != nil {
		return err
	}
	_, err := x.cfg.Engine.Ready(ctx)
	return err
}

// Run answers the shard's open items.
func (x *Executor) Run(ctx context.Context, s *worker.Shard) error {
	ctx, abort := context.WithCancelCause(ctx)
	defer abort(nil)
	id, ok := identity.ParseContentID(s.Manifest.ModelID)
	if !ok {
		return fault.New(fault.Corrupt, "manifest of run %s names the model id %q", s.Manifest.Run, s.Manifest.ModelID)
	}
	if x.cfg.Model != (identity.ContentID{}) && x.cfg.Model != id {
		return &fault.Error{Kind: fault.Denied, Err: fmt.Errorf("%w: another revision of %s", worker.ErrModelMismatch, s.Manifest.ModelURI),
			Remedy: "stop the run and submit its file again, or go on with the program that began it"}
	}
	t := execution{Executor: x, shard: s, abort: abort, dialect: dialect.Name(s.Manifest.Dialect),
		model: dialect.Model{URI: s.Manifest.ModelURI, ID: id, Params: s.Manifest.Config.Sampling.Canonical()}}
	requests := t.crew.begin()
	for i := range s.PendingItems(ctx, t.order()) {
		if !t.begin(ctx, i, requests) {
			break
		}
	}
	requests.end()
	t.runProbation(ctx)
	if cause := context.Cause(ctx); ctx.Err() != nil && !errors.Is(cause, context.Canceled) {
		return cause
	}
	return nil
}

// execution is one shard being answered.
type execution struct {
	*Executor
	shard   *worker.Shard
	dialect dialect.Name
	model   dialect.Model
	abort   context.CancelCauseFunc // hands the shard back: the engine is at fault
}

// begin starts an item's requests, one place each; false if there are no more
// places to be had.
func (t *execution) begin(ctx context.Context, i int, requests *round) bool {
	a := t.prepare(i)
	if a == nil {
		return true
	}
	for k := range a.got {
		place, ok := t.shard.AcquireSlot(ctx)
		if !ok {
			a.abandon(k)
			return false
		}
		if k > 0 && t.shard.IsSuspect(i) { // an engine died of a request before this one, maybe
			place.Release()
			a.abandon(k)
			return true
		}
		requests.do(func(h *scratch) {
			defer place.Release()
			answer, err := t.ask(ctx, h, a, k, false)
			a.take(h, k, answer, err)
		})
	}
	return true
}

// prepare makes the item of a line; nil if it has its error row now.
func (t *execution) prepare(i int) *answers {
	line := t.shard.Lines[i]
	it, err := t.parse(line)
	if err != nil {
		t.fail(i, it, line.Place, err, 0)
		return nil
	}
	n := it.AnswerCount(t.shard.Manifest.Config.Sampling)
	a := &answers{execution: t, index: i, item: it, id: it.ItemID(t.model, line.Place.Item), place: line.Place, left: n}
	if n == 1 {
		a.got = a.one[:]
	} else {
		a.got = make([]dialect.Answer, n)
	}
	return a
}

// parse reads the line; the item comes with the error as far as its own id
// can be read.
func (t *execution) parse(l input.Line) (*dialect.Item, error) {
	if l.TooLong > 0 {
		return nil, &fault.Error{Kind: fault.Invalid, Class: fault.InvalidLine, Err: fault.New(fault.Invalid, "the line has %d bytes, more than 16 MiB", l.TooLong),
			Remedy: "shorten it or split it"}
	}
	it, err := dialect.Parse(t.dialect, l.Bytes)
	if err != nil {
		return it, err
	}
	if d := l.Duplicate; d != nil {
		return it, &fault.Error{Kind: fault.Invalid, Class: fault.DuplicateID, Err: fault.New(fault.Invalid, "line %d of %s has the same id and came first", d.Line, d.File),
			Remedy: "give every line an id of its own"}
	}
	return it, it.CheckModel(t.model.URI)
}

// fail gives the item its error row.
func (t *execution) fail(i int, it *dialect.Item, place dialect.Place, err error, wasted int64) {
	f := t.failure(it, place, err)
	t.shard.Put(i, dialect.AppendError(nil, t.dialect, f), f.Class, worker.Tokens{Wasted: wasted})
	t.tell(place.Item, f.ID, f.Class)
}

// failure is the item's, under its own id as far as the line tells it.
func (t *execution) failure(it *dialect.Item, place dialect.Place, err error) dialect.Failure {
	id := ""
	if it == nil { // the line was too long to be looked at
		it = &dialect.Item{}
	} else if it.Request != nil {
		id = it.RowID(it.ItemID(t.model, place.Item))
	}
	return it.Failure(id, place, classOf(err), err.Error())
}

func (t *execution) tell(item uint64, id string, class fault.Class) {
	if t.cfg.OnItem != nil {
		t.cfg.OnItem(Item{Run: t.shard.Manifest.Run, Shard: t.shard.Index, Item: item, ID: id, Class: class})
	}
}

// classOf is the class that the error amounts to for an item.
func classOf(err error) fault.Class {
	if c := fault.ClassOf(err); c != "" {
		return c
	}
	if fault.Is(err, fault.Invalid) {
		return fault.Refused
	}
	return fault.Engine
}

// answers gathers the answers to one item's requests.
type answers struct {
	*execution
	index int
	item  *dialect.Item
	id    identity.ContentID
	place dialect.Place

	mu   sync.Mutex
	got  []dialect.Answer
	one  [1]dialect.Answer // room for the usual number of them
	left int
	err  error
}

// abandon says that the requests from k on are not made.
func (a *answers) abandon(k int) {
	for ; k < len(a.got); k++ {
		a.take(nil, k, dialect.Answer{}, fault.New(fault.Canceled, "item %d is not asked on", a.place.Item))
	}
}

// take takes one request's end in; the last one makes the item's row. A
// request that was cut off leaves the item without a row: it starts again. The
// hand renders the row; who knows that there will be none needs no hand.
func (a *answers) take(h *scratch, k int, answer dialect.Answer, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.got[k] = answer
	a.left--
	if err != nil && (a.err == nil || fault.Is(err, fault.Canceled)) {
		a.err = err
	}
	if fault.Is(a.err, fault.Canceled) {
		a.shard.AddWastedTokens(a.wasted())
		return
	}
	if a.left > 0 {
		return
	}
	if a.err != nil {
		a.fail(a.index, a.item, a.place, a.err, a.wasted())
		return
	}
	id := a.item.RowID(a.id)
	h.row = dialect.AppendOutput(h.row[:0], a.item, a.model, dialect.Result{ID: id, Answers: a.got, GeneratedAt: a.cfg.Clock.Now().UTC()})
	a.shard.Put(a.index, h.row, "", a.cost())
	a.tell(a.place.Item, id, "")
}
