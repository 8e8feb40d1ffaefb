// Package infer is the executor of batch runs: it sends n requests for an item
// to an engine and makes one row of the answers.
//
// It builds each request from the item's input line, tells faults of the item
// from those of the engine, and renders the row in the dialect of the input.
// Requests and rows are pure functions of line, config and answers (I10). The
// package never claims, commits or retries a shard.
package infer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"rollout/gpuworker/engine"
	"rollout/gpuworker/grading"
	"rollout/gpuworker/worker"
	"rollout/shared/clock"
	"rollout/shared/config"
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
	// RequestTimeout is the longest that a request may take; 0 sets no limit.
	RequestTimeout time.Duration
	// MaxOutage is how long the engine may be down before shards are released.
	MaxOutage time.Duration
	// Request is what the engine's config adds to all requests.
	Request config.Request
	Tensors bool // rows may bring serialized tensors
	// Servers are the names of the engine's servers, as engine.ServerOf returns them; nil
	// for an engine that is a single server.
	Servers []string
	// Model, if set, is the id of the only model that the engine serves. Runs of
	// another model or revision are refused.
	Model identity.ContentID
	// Graders are the scoring services of the deployment; nil without any.
	Graders *grading.Services
	// OnItem is an optional hook, called after each item got its row, from many
	// goroutines at once. It must not block. The row may still be lost if the
	// worker dies before the next checkpoint.
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

// Executor answers shards. It is safe for concurrent use.
type Executor struct {
	cfg        Config
	blame      *attribution
	requesters *requesters
}

// New returns an executor over an engine.
func New(cfg Config) *Executor {
	return &Executor{cfg: cfg, blame: newAttribution(cfg.Servers, cfg.Log), requesters: newRequesters()}
}

// Ready returns nil if the engine can answer, and Unavailable if it has refused
// all requests for long.
func (x *Executor) Ready(ctx context.Context) error {
	if err := x.blame.unavailable(x.cfg.Clock.Now()); err != nil {
		return err
	}
	_, err := x.cfg.Engine.Ready(ctx)
	return err
}

// Run answers the shard's items that have no row.
func (x *Executor) Run(ctx context.Context, s *worker.Shard) error {
	outer := ctx
	id, ok := identity.ParseContentID(s.Manifest.ModelID)
	if !ok {
		return fault.New(fault.Corrupt, "manifest of run %s has the invalid model id %q", s.Manifest.Run, s.Manifest.ModelID)
	}
	if x.cfg.Model != (identity.ContentID{}) && x.cfg.Model != id {
		return &fault.Error{Kind: fault.Denied,
			Err:    fmt.Errorf("%w: another revision of %s", worker.ErrModelMismatch, s.Manifest.ModelURI),
			Remedy: "stop the run and submit its file again, or continue with the program that started it"}
	}
	if err := x.cfg.Graders.CheckPins(s.Manifest.Plugins); err != nil {
		refused := &worker.RefusedError{Outcome: "plugin_mismatch", Err: err}
		if !s.ReportRefused(outer, refused) {
			return x.blame.notPaused(string(s.Manifest.Run), err, x.cfg.Clock.Now())
		}
		return refused
	}
	graders, err := x.cfg.Graders.Graders(s.Manifest.Config.Grades)
	if err != nil {
		return err
	}
	ctx, abort := context.WithCancelCause(ctx)
	t := &execution{Executor: x, shard: s, abort: abort, dialect: dialect.Name(s.Manifest.Dialect),
		model:    s.Manifest.DialectModel(),
		settings: dialect.NewSettings(s.Manifest.Config.Request, x.cfg.Request),
		grades:   grades{graders: graders, ctx: outer}}
	defer func() { abort(nil); t.comparisons.Wait() }()
	x.blame.begin(s)
	t.options = optionsOf(s.Manifest.Config.Request, t.settings)
	requests := t.requesters.begin()
	for i := range s.PendingItems(ctx, t.order()) {
		if !t.begin(ctx, i, requests) {
			break
		}
	}
	requests.end()
	t.grades.wait()
	t.runProbation(ctx)
	cause := context.Cause(ctx)
	if ctx.Err() == nil || errors.Is(cause, context.Canceled) {
		return nil
	}
	var refused *worker.RefusedError
	if errors.As(cause, &refused) && !s.ReportRefused(outer, refused) {
		return x.blame.notPaused(string(s.Manifest.Run), refused.Err, x.cfg.Clock.Now())
	}
	return cause
}

// execution is one shard being answered.
type execution struct {
	*Executor
	shard   *worker.Shard
	dialect dialect.Name
	model   dialect.Model
	// settings and options are what the config adds to requests; nil for nothing.
	settings *dialect.Settings
	options  *engine.Options
	abort    context.CancelCauseFunc // releases the shard because of a fault of the engine
	grades   grades
	// comparisons are the requests of comparisons that are under way.
	comparisons sync.WaitGroup
}

// run returns the name of the run in the ledger.
func (t *execution) run() string { return string(t.shard.Manifest.Run) }

// begin starts the item's requests, one slot each. It returns false if no slot
// can be had any more.
func (t *execution) begin(ctx context.Context, i int, requests *round) bool {
	if !t.grades.awaitRoom(ctx, t.shard.Stopping()) {
		return false
	}
	a := t.prepare(i)
	if a == nil {
		return true
	}
	for k := range a.got {
		slot, permit, ok := t.shard.AcquireSlot(ctx, a.cost)
		if !ok {
			a.abandon(k)
			return false
		}
		if k > 0 && t.shard.IsSuspect(i) { // the engine may have crashed on an earlier request of the item
			slot.Release()
			permit.Cancel()
			a.abandon(k)
			return true
		}
		requests.do(func(sc *scratch) {
			defer slot.Release()
			answer, err := t.ask(ctx, sc, a, k, permit, false)
			a.add(sc, k, answer, err)
		})
	}
	return true
}

// prepare parses the item's line. It returns nil if the line is faulty and the
// item has its error row now.
func (t *execution) prepare(i int) *answers {
	line := t.shard.Lines[i]
	it, err := t.parse(line)
	if err != nil {
		t.fail(i, it, line.Place, err, 0)
		return nil
	}
	n := it.AnswerCount(t.shard.Manifest.Config.Sampling)
	a := &answers{execution: t, index: i, item: it, id: it.ItemID(t.model, line.Place.Item), place: line.Place, left: n}
	if t.shard.IsLimited() {
		a.cost = t.costOf(it)
	}
	if n == 1 {
		a.got = a.one[:]
	} else {
		a.got = make([]dialect.Answer, n)
	}
	return a
}

// parse parses the line. With an error it returns the item as far as its own id
// could be read.
func (t *execution) parse(l input.Line) (*dialect.Item, error) {
	if l.TooLong > 0 {
		it, _ := dialect.Parse(t.dialect, l.Head) // for its id: the head is only a part of the line
		return it, &fault.Error{Kind: fault.Invalid, Class: fault.InvalidLine,
			Err:    fault.New(fault.Invalid, "the line has %d bytes, more than 16 MiB", l.TooLong),
			Remedy: "shorten it or split it"}
	}
	it, err := dialect.Parse(t.dialect, l.Bytes)
	if err != nil {
		return it, err
	}
	if d := l.Duplicate; d != nil {
		return it, &fault.Error{Kind: fault.Invalid, Class: fault.DuplicateID,
			Err:    fault.New(fault.Invalid, "line %d of %s has the same id and came first", d.Line, d.File),
			Remedy: "give every line an id of its own"}
	}
	if err := it.CheckModel(t.model.URI, t.shard.Manifest.Config.Request); err != nil {
		return it, err
	}
	if _, err := t.settings.Target(it); err != nil {
		return it, err
	}
	return it, it.CheckTensors(t.cfg.Tensors)
}

// fail gives the item its error row.
func (t *execution) fail(i int, it *dialect.Item, place dialect.Place, err error, wasted int64) {
	f := t.failure(it, place, err)
	t.shard.Put(i, dialect.AppendError(nil, t.dialect, f), f.Class, worker.Tokens{Wasted: wasted})
	t.notify(place.Item, f.ID, f.Class)
}

// failure describes the item's fault, under its own id if the line has one that
// can be read.
func (t *execution) failure(it *dialect.Item, place dialect.Place, err error) dialect.Failure {
	id := ""
	if it.Request != nil {
		id = it.RowID(it.ItemID(t.model, place.Item))
	}
	return it.Failure(id, place, classOf(err), err.Error())
}

// notify calls the hook OnItem.
func (t *execution) notify(item uint64, id string, class fault.Class) {
	if t.cfg.OnItem != nil {
		t.cfg.OnItem(Item{Run: t.shard.Manifest.Run, Shard: t.shard.Index, Item: item, ID: id, Class: class})
	}
}

// classOf returns the class of an item's error row.
func classOf(err error) fault.Class {
	if c := fault.ClassOf(err); c != "" {
		return c
	}
	var s *engine.StatusError
	if fault.Is(err, fault.Invalid) || errors.As(err, &s) && 400 <= s.Status && s.Status < 500 {
		return fault.Refused
	}
	return fault.Engine
}
