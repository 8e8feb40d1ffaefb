package balancer

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"rollout/gpuworker/engine"
	"rollout/shared/fault"
)

// Server is one inference server: an engine that tells its vitals.
type Server interface {
	engine.Engine
	// Metrics is what the server tells of itself: all Quiet if nothing, an
	// Unavailable fault if it is not there (with engine.ServerError in the chain if
	// it refuses connections).
	Metrics(ctx context.Context) (engine.ServerMetrics, error)
}

// Backend is a server and its name. Example: "http://127.0.0.1:8000/v1".
type Backend struct {
	Name   string
	Server Server
}

// Bounds of a server's limit where Config sets none.
const (
	DefaultMin   = 4
	DefaultMax   = 512
	DefaultStart = 64
)

// Config sets a Fleet up.
type Config struct {
	Servers []Backend // at least one
	// InFlight is how many requests the caller makes at once, over all
	// servers. 0: the fleet says how many, see Limit.
	InFlight int
	// MinInFlight and Max bound what each server gets at once if InFlight is 0.
	MinInFlight, MaxInFlight int
	Log                      *slog.Logger // nobody hears if nil
}

// Balancer is an engine.Engine. Any number of goroutines may use it.
type Balancer struct {
	log     *slog.Logger
	fixed   int // requests at once, over all; 0 adapts
	least   int
	changes chan struct{}
	asks    sync.Pool // *ask

	ctx  context.Context // ends with Close
	end  context.CancelFunc
	work sync.WaitGroup

	mu      sync.Mutex
	servers []*server
	next    int // which server is looked at first: equals share the load
	closed  bool
	told    int // the limit that was told last
}

// New returns a fleet. It makes no request before it gets one.
func New(cfg Config) *Balancer {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	least, most := cmp.Or(cfg.MinInFlight, DefaultMin), cmp.Or(cfg.MaxInFlight, DefaultMax)
	ctx, end := context.WithCancel(context.Background())
	f := &Balancer{log: cfg.Log, fixed: cfg.InFlight, least: least, changes: make(chan struct{}, 1), ctx: ctx, end: end,
		asks: sync.Pool{New: newAsk}}
	for _, m := range cfg.Servers {
		s := &server{Backend: m, breaker: newBreaker(), waiting: int(engine.UnknownMetrics().Waiting)}
		if cfg.InFlight == 0 {
			s.concurrency = newConcurrencyLimit(least, most, DefaultStart)
		}
		f.servers = append(f.servers, s)
	}
	f.told = f.limit()
	f.work.Go(f.watch)
	return f
}

// Answer asks the server with the most room.
//
// Trouble makes it find out, within 2 seconds, what became of the server. If
// the server works, the fault is the request's. If it fails for everybody, it
// is Unavailable. If it died while it had the request, engine.CrashError is in the
// chain. What is Throttled by one server while another has room carries no
// hint: the request may come back at once.
func (f *Balancer) Answer(ctx context.Context, r engine.Request, progress func()) (engine.Answer, error) {
	if r.Exclusive {
		return f.answerAlone(ctx, r, progress)
	}
	a := f.asks.Get().(*ask)
	defer f.release(a)
	f.mu.Lock()
	s, err := f.pick()
	if err != nil {
		f.mu.Unlock()
		return engine.Answer{}, err
	}
	a.begin(s, progress, time.Now())
	f.mu.Unlock()
	return f.ask(ctx, a, r)
}

// ask asks the server that was chosen.
func (f *Balancer) ask(ctx context.Context, a *ask, r engine.Request) (engine.Answer, error) {
	got, err := a.server.Server.Answer(ctx, r, a.tell)
	f.mu.Lock()
	changed := a.over(time.Now(), err) && f.toldAnew()
	f.mu.Unlock()
	if changed {
		f.tell()
	}
	if err == nil {
		return got, nil
	}
	return engine.Answer{}, f.attribute(ctx, a, r, err)
}

// pick returns the server that gets the next request. f.mu is held.
func (f *Balancer) pick() (*server, error) {
	now := time.Now()
	var best *server
	for i := range f.servers {
		s := f.servers[(f.next+i)%len(f.servers)]
		if !s.breaker.away() && !s.exclusive && (best == nil || s.before(best, now)) {
			best = s
		}
	}
	f.next++
	if best != nil {
		return best, nil
	}
	for _, s := range f.servers {
		if s.exclusive {
			return nil, fault.New(fault.Throttled, "the server %s answers one request alone", s.Name)
		}
	}
	return nil, f.allAway()
}

// allAway says why no server gets requests. f.mu is held.
func (f *Balancer) allAway() error {
	var why []error
	for _, s := range f.servers {
		why = append(why, s.why)
	}
	return fault.WithKind(fault.Unavailable, errors.Join(why...), "no inference server answers")
}

// Ready asks every server that is not known to be away, and reports nil once
// one of them can answer. A refusal that concerns every request (the key, the
// model) counts whichever server it comes from.
func (f *Balancer) Ready(ctx context.Context) (string, error) {
	f.mu.Lock()
	var asked []*server
	for _, s := range f.servers {
		if !s.breaker.away() {
			asked = append(asked, s)
		}
	}
	err := f.allAway()
	f.mu.Unlock()
	if len(asked) == 0 {
		return "", err
	}
	type reply struct {
		model string
		err   error
	}
	replies := make([]reply, len(asked))
	var all sync.WaitGroup
	for i, s := range asked {
		all.Go(func() {
			replies[i].model, replies[i].err = s.Server.Ready(ctx)
			if replies[i].err == nil {
				f.look(ctx, s)
			}
		})
	}
	all.Wait()
	var ready *reply
	for i := range replies {
		r := &replies[i]
		switch {
		case fault.Is(r.err, fault.Denied), fault.Is(r.err, fault.Invalid):
			return "", r.err
		case r.err == nil && ready == nil:
			ready = r
		}
	}
	if ready == nil {
		return "", replies[0].err
	}
	return ready.model, nil
}

// Limit is how many requests the caller should make at once: what Config says,
// else what the servers that answer take together.
func (f *Balancer) Limit() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.limit()
}

func (f *Balancer) limit() int {
	if f.fixed > 0 {
		return f.fixed
	}
	sum := 0
	for _, s := range f.servers {
		if !s.breaker.away() {
			sum += s.concurrency.limit
		}
	}
	return max(sum, f.least)
}

// LimitChanges gets a value when Limit may have changed.
func (f *Balancer) LimitChanges() <-chan struct{} { return f.changes }

// toldAnew reports whether the limit is another one than was told. f.mu is
// held.
func (f *Balancer) toldAnew() bool {
	n := f.limit()
	changed := n != f.told
	f.told = n
	return changed
}

func (f *Balancer) tell() {
	select {
	case f.changes <- struct{}{}:
	default:
	}
}

// ServerStatus is how a server stands, for those who watch.
type ServerStatus struct {
	Name     string
	State    State
	InFlight int
	Limit    int    // 0: there is none of its own
	Waiting  int    // requests that wait at it, as it said last; negative if it did not
	Start    string // names the server's start, if it says
	Why      string // what its last trouble was; "" if there was none
}

// ServerStatuses are in the order of the config.
func (f *Balancer) ServerStatuses() []ServerStatus {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := make([]ServerStatus, len(f.servers))
	for i, s := range f.servers {
		out[i] = ServerStatus{Name: s.Name, State: s.breaker.state, InFlight: s.inFlight, Waiting: s.waiting, Start: s.start}
		if s.concurrency != nil {
			out[i].Limit = s.concurrency.limit
		}
		if s.why != nil && s.breaker.state != Closed {
			out[i].Why = s.why.Error()
		}
	}
	return out
}

// Close ends answers in flight. It may be called again.
func (f *Balancer) Close() error {
	f.mu.Lock()
	f.closed = true
	f.mu.Unlock()
	f.end()
	var errs []error
	for _, s := range f.servers {
		errs = append(errs, s.Server.Close())
	}
	f.work.Wait()
	return errors.Join(errs...)
}
