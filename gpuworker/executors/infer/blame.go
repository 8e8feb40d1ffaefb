package infer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"time"

	"rollout/gpuworker/engine"
	"rollout/gpuworker/worker"
	"rollout/shared/core/blame"
	"rollout/shared/fault"
	"rollout/shared/text"
)

// Requests that wait for a server of which all are doubted for maxRefusal end: their
// shards are released for other workers, and this worker pulls none for minNextTry.
const (
	maxRefusal = 5 * time.Minute
	minNextTry = 30 * time.Second
)

// attribution is the executor's ledger of what requests met. It is safe for concurrent
// use.
type attribution struct {
	log *slog.Logger // may be nil

	mu      sync.Mutex
	ledger  *blame.Ledger
	changed chan struct{}            // closed at the next change
	waited  bool                     // somebody waits for it
	doubted map[string]blame.Failure // the servers that were doubted at the last change
	// good are requests that were answered, for comparisons: one a run, the run that was
	// answered first before the others; at most maxGoodRuns.
	good []goodRequest
	away error     // why all servers are away
	till time.Time // when they are tried again
}

// goodRequest is a request of a run that was answered.
type goodRequest struct {
	run string
	engine.Request
}

// onlyServer is the name in the ledger of an engine that is a single server.
const onlyServer = "engine"

func newAttribution(servers []string, log *slog.Logger) *attribution {
	if len(servers) == 0 {
		servers = []string{onlyServer}
	}
	return &attribution{log: log, ledger: blame.New(servers...), changed: make(chan struct{})}
}

// logDoubts logs which servers are doubted since the last change, and which are no more.
// The caller holds a.mu.
func (a *attribution) logDoubts() {
	now := a.ledger.Doubts()
	if a.log == nil || len(now) == 0 && len(a.doubted) == 0 {
		return
	}
	for name, f := range now {
		if _, was := a.doubted[name]; !was {
			a.log.Warn("inference server gets no requests of items until it answers again", "server", name, "error", f.Words)
		}
	}
	for name := range a.doubted {
		if _, is := now[name]; !is {
			a.log.Info("inference server answers again", "server", name)
		}
	}
	a.doubted = now
}

// SetAside returns the servers that get no requests of items until they answer again, each
// with what it said last; nil without any.
func (x *Executor) SetAside() map[string]string {
	x.blame.mu.Lock()
	defer x.blame.mu.Unlock()
	var out map[string]string
	for name, f := range x.blame.ledger.Doubts() {
		if out == nil {
			out = map[string]string{}
		}
		out[name] = f.Words
	}
	return out
}

// announce wakes the requests that wait. The caller holds a.mu.
func (a *attribution) announce() {
	a.logDoubts()
	if a.waited {
		close(a.changed)
		a.changed, a.waited = make(chan struct{}), false
	}
}

// begin tells of work on a shard of a run.
func (a *attribution) begin(s *worker.Shard) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.ledger.Begin(string(s.Manifest.Run), s.Control.Sequence, blame.Outcome(s.Control.Refused), s.HasAnswers)
	a.announce()
}

// unavailable returns the fault of servers that are away, until they are tried again.
func (a *attribution) unavailable(now time.Time) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.away == nil || !now.Before(a.till) {
		return nil
	}
	return a.away
}

// Bounds of the requests that are kept for comparisons: of a body, and of their number.
const (
	maxGood     = 64 << 10
	maxGoodRuns = 16
)

// answered records an answer to a request of the run.
func (a *attribution) answered(run string, r blame.Request, server string, req engine.Request, now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.ledger.Answered(r, server, now)
	a.away = nil
	a.keep(run, req)
	a.announce()
}

// keep keeps a request of the run that was answered, if it is the first one. The caller
// holds a.mu.
func (a *attribution) keep(run string, req engine.Request) {
	if len(req.Body) > maxGood || a.goodOf(run) != nil {
		return
	}
	req.Body, req.Exclusive = bytes.Clone(req.Body), false
	if len(a.good) == maxGoodRuns {
		a.good = slices.Delete(a.good, 0, 1)
	}
	a.good = append(a.good, goodRequest{run, req})
}

// goodOf returns the answered request of the run that is kept; nil if there is none. The
// caller holds a.mu.
func (a *attribution) goodOf(run string) *engine.Request {
	for i := range a.good {
		if a.good[i].run == run {
			return &a.good[i].Request
		}
	}
	return nil
}

// works records that the server works, though the request was not answered.
func (a *attribution) works(r blame.Request, server string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.ledger.Works(r, server)
	a.announce()
}

// abandon records that nothing is known of the request.
func (a *attribution) abandon(r blame.Request, now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.ledger.Abandon(r, now)
	a.announce()
}

// failed records a failure, and reports whether the item is charged at once.
func (a *attribution) failed(i *inquiry, r blame.Request, server string, f blame.Failure, now time.Time) (charge bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	charge = a.ledger.Failed(r, server, f, now)
	if !charge {
		a.ledger.Add(i.item, &i.evidence, server, r, f)
	}
	a.announce()
	return charge
}

func (a *attribution) weigh(i *inquiry, least int) blame.Judgement {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.ledger.Weigh(i.item, &i.evidence, least)
}

// giveUp records that all servers have been away for long.
func (a *attribution) giveUp(err error, now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.away, a.till = err, now.Add(minNextTry)
}

// notPaused records that a run goes on which this worker refuses for that reason: its own
// servers may be at fault. So it pulls nothing for a while, and leaves the shards to others.
// It returns the fault with which the shard is released.
func (a *attribution) notPaused(run string, refused error, now time.Time) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.ledger.NotPaused(run)
	a.away, a.till = fault.WithKind(fault.Unavailable, refused, "run %s goes on elsewhere", run), now.Add(minNextTry)
	a.announce()
	return a.away
}

// inquiry is one decode of an item, over all its tries.
type inquiry struct {
	item     blame.Item
	evidence blame.Evidence
	tries    int // requests so far
	failures int // for which the item is at fault itself
	// whitespace says that the last answer was white space: the next needs another seed.
	whitespace bool
	err        error          // of the last try, until it is weighed
	permit     *worker.Permit // of the next request; nil before it has one
}

// admit waits until the item's next request may begin, and where, and until it has a
// permit. It returns a Canceled fault if it may not: the shard stops, the run must
// pause, or all servers have been away for maxRefusal. While it waits for a server it
// holds no permit, which a comparison needs.
func (t *execution) admit(ctx context.Context, a *answers, i *inquiry) (blame.Admission, error) {
	began := t.cfg.Clock.Now()
	for {
		now := t.cfg.Clock.Now()
		adm, changed := t.askLedger(ctx, i, now)
		if adm.Go && i.permit == nil {
			permit, ok := t.shard.AcquirePermit(ctx, a.cost)
			if !ok {
				t.blame.abandon(adm.Request, t.cfg.Clock.Now())
				return adm, stopsBefore(a)
			}
			i.permit = &permit
		}
		if adm.Go {
			return adm, nil
		}
		if i.permit != nil {
			i.permit.Cancel()
			i.permit = nil
		}
		switch {
		case adm.Refused != nil:
			t.abort(refusedError(adm.Refused))
		case now.Sub(began) >= maxRefusal:
			err := fault.New(fault.Unavailable, "the engine has refused all requests for %s", maxRefusal)
			t.blame.giveUp(err, now)
			t.abort(err)
		default:
			t.awaitChange(ctx, changed, min(adm.Until.Sub(now), maxRefusal-now.Sub(began)))
		}
		if ctx.Err() != nil || t.shard.Stopped() {
			return adm, stopsBefore(a)
		}
	}
}

// askLedger asks the ledger once, and begins the comparison that it wants. Changed is
// closed when the ledger has changed.
func (t *execution) askLedger(ctx context.Context, i *inquiry, now time.Time) (
	a blame.Admission, changed <-chan struct{}) {
	l := t.blame
	l.mu.Lock()
	defer l.mu.Unlock()
	a = l.ledger.Admit(i.item, &i.evidence, i.tries == 0, now)
	if a.Compare != "" {
		r := l.ledger.Compare(a.Compare, i.item.Run, now)
		t.comparisons.Go(func() { t.compare(ctx, r, a.Compare) })
	}
	if a.LookUp {
		t.comparisons.Go(func() { t.lookUp(ctx) })
	}
	l.waited = l.waited || !a.Go
	return a, l.changed
}

// awaitChange waits until changed is closed, for d, or until the shard stops.
func (t *execution) awaitChange(ctx context.Context, changed <-chan struct{}, d time.Duration) {
	timer := time.NewTimer(max(d, time.Millisecond))
	defer timer.Stop()
	select {
	case <-changed:
	case <-timer.C:
	case <-t.shard.Stopping():
	case <-ctx.Done():
	}
}

// refusedError returns the fault for which a run must pause.
func refusedError(r *blame.Refusal) error {
	return &worker.RefusedError{Outcome: string(r.Outcome), Err: &fault.Error{Kind: fault.Denied,
		Op: "no request of the run is answered", Err: errors.New(r.Words),
		Remedy: "mend it and resume the run; items that meet it again fail"}}
}

// isNamed reports whether a fault names its cause, which is the item: its prompt, or a
// member of the request that the line itself brought.
func (a *answers) isNamed(err error) bool {
	if !fault.Is(err, fault.Invalid) {
		return false
	}
	var s *engine.StatusError
	if !errors.As(err, &s) {
		return true // the client could not send it
	}
	return s.Named || a.item.Brings(s.Param) ||
		(s.Status == http.StatusBadRequest || s.Status == http.StatusUnprocessableEntity) && a.item.BringsQuoted(s.Error())
}

// failureOf returns what a fault means for the ledger.
func failureOf(err error) blame.Failure {
	f := blame.Failure{Outcome: blame.Outcome(fault.KindOf(err).String()), RetryAfter: fault.RetryAfter(err),
		Words: text.Truncate(err.Error(), maxWords, "…")}
	if fault.Is(err, fault.Corrupt) || fault.Is(err, fault.Internal) || fault.Is(err, fault.Denied) ||
		fault.Is(err, fault.Invalid) {
		f.Nature = blame.Setting
	}
	var s *engine.StatusError
	if !errors.As(err, &s) {
		return f
	}
	f.Outcome, f.Nature = blame.Outcome(fmt.Sprintf("status_%d", s.Status)), blame.Setting
	switch s.Status {
	case http.StatusRequestTimeout, http.StatusConflict, http.StatusTooEarly, http.StatusTooManyRequests,
		http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		f.Nature = blame.Outage
	}
	if s.Quota {
		f.Outcome, f.Nature = f.Outcome+"_quota", blame.Setting
	}
	return f
}

// maxWords bounds what a server said, in the reason of a pause.
const maxWords = 280

// server returns the name in the ledger of the server that failed.
func (t *execution) server(err error) (name string, known bool) {
	if len(t.cfg.Servers) == 0 {
		return onlyServer, true
	}
	return engine.ServerOf(err)
}
