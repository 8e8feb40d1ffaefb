package balancer

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"rollout/gpuworker/engine"
	"rollout/shared/core/liveness"
	"rollout/shared/fault"
)

// Server is one inference server: an engine that reports metrics.
type Server interface {
	engine.Engine
	// Metrics returns what the server reports of itself: UnknownMetrics if
	// nothing. An Unavailable fault says that the server can't be reached, with
	// engine.ServerError in the chain if it refuses connections.
	Metrics(ctx context.Context) (engine.ServerMetrics, error)
}

// Backend is a server and its name. Example: "http://127.0.0.1:8000/v1".
type Backend struct {
	Name   string
	Server Server
}

// Bounds of a server's limit, and where it starts, unless Config sets them.
const (
	DefaultMin   = 4
	DefaultMax   = 512
	DefaultStart = 64
)

// Config sets up a Balancer.
type Config struct {
	Servers []Backend // at least one
	// InFlight is how many requests the caller makes at once, over all servers.
	// With 0 the balancer finds the number; see Limit.
	InFlight int
	// MinInFlight and MaxInFlight bound the requests that each server gets at
	// once, if InFlight is 0.
	MinInFlight, MaxInFlight int
	// Stream says which requests are streamed.
	Stream Stream
	// Silence is how long a request may show no sign of work before the caller cancels it;
	// 0 means 2 minutes.
	Silence time.Duration
	Log     *slog.Logger // may be nil
}

// Balancer is an engine.Engine. It is safe for concurrent use.
type Balancer struct {
	log      *slog.Logger
	fixed    int // requests at once, over all servers; 0: found by trying
	min      int
	stream   Stream
	changes  chan struct{}
	requests sync.Pool // of *request

	ctx  context.Context // ends with Close
	end  context.CancelFunc
	work sync.WaitGroup

	mu        sync.Mutex
	servers   []*server
	next      int // the server to look at first: the one behind that of the last request
	closed    bool
	lastLimit int // that was announced
}

// New returns a balancer. It contacts a server only when it gets a request.
func New(cfg Config) *Balancer {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	least, most := cmp.Or(cfg.MinInFlight, DefaultMin), cmp.Or(cfg.MaxInFlight, DefaultMax)
	silence := cmp.Or(cfg.Silence, defaultSilence)
	ctx, end := context.WithCancel(context.Background())
	b := &Balancer{log: cfg.Log, fixed: cfg.InFlight, min: least, stream: cfg.Stream, changes: make(chan struct{}, 1),
		ctx: ctx, end: end, requests: sync.Pool{New: newRequest}}
	for _, m := range cfg.Servers {
		s := &server{Backend: m, breaker: newBreaker(), waiting: int(engine.UnknownMetrics().Waiting),
			silence: silence, live: liveness.New(silence), whole: map[*request]struct{}{}}
		if cfg.InFlight == 0 {
			s.concurrency = newConcurrencyLimit(least, most, DefaultStart)
		}
		b.servers = append(b.servers, s)
	}
	b.lastLimit = b.limit()
	b.work.Go(b.watch)
	return b
}

// Answer sends the request to the server with the most room.
//
// After a ServerError it probes the server, within 2 seconds. If the server
// works, the fault is the request's. If the server fails for all requests, the
// fault is Unavailable. If it crashed while it had the request,
// engine.CrashError is in the chain. A Throttled fault has no RetryAfter if
// another server has room: the caller may repeat the request at once.
func (b *Balancer) Answer(ctx context.Context, r engine.Request, progress func()) (engine.Answer, error) {
	if r.Exclusive {
		return b.answerExclusively(ctx, r, progress)
	}
	q := b.requests.Get().(*request)
	defer b.release(q)
	b.mu.Lock()
	s, err := b.pick(r.Servers)
	if err != nil {
		b.mu.Unlock()
		return engine.Answer{}, err
	}
	r = b.begin(q, s, r, progress)
	b.mu.Unlock()
	return b.send(ctx, q, r)
}

// send sends the request to the server that was chosen for it.
func (b *Balancer) send(ctx context.Context, q *request, r engine.Request) (engine.Answer, error) {
	got, err := q.server.Server.Answer(ctx, r, q.report)
	b.mu.Lock()
	changed := q.end(time.Now(), got.Usage, err) && b.limitChanged()
	err = q.withEstimate(ctx, err)
	b.mu.Unlock()
	if changed {
		b.announceLimit()
	}
	if err == nil {
		got.Server = q.server.Name
		return got, nil
	}
	return engine.Answer{}, engine.WithServer(b.attribute(ctx, q, r, err), q.server.Name)
}

// pick returns the server that gets the next request, of those that are allowed; nil
// is any. The caller holds b.mu.
func (b *Balancer) pick(allowed []string) (*server, error) {
	now := time.Now()
	var best *server
	after := b.next
	for i := range b.servers {
		s := b.servers[(b.next+i)%len(b.servers)]
		if !s.breaker.setAside() && !s.exclusive && s.isOneOf(allowed) && (best == nil || s.before(best, now)) {
			best, after = s, b.next+i+1
		}
	}
	b.next = after % len(b.servers)
	if best != nil {
		return best, nil
	}
	for _, s := range b.servers {
		if s.exclusive && s.isOneOf(allowed) {
			return nil, fault.New(fault.Throttled, "the server %s is answering an exclusive request", s.Name)
		}
	}
	return nil, b.allSetAside()
}

// allSetAside returns the fault if all servers are set aside, with the last
// errors of each. The caller holds b.mu.
func (b *Balancer) allSetAside() error {
	var errs []error
	for _, s := range b.servers {
		errs = append(errs, s.lastErr)
	}
	return fault.WithKind(fault.Unavailable, errors.Join(errs...), "no inference server answers")
}

// How long Ready waits: for a server, and for the others when one is ready.
const (
	readyTime  = time.Minute
	othersTime = 5 * time.Second
)

// Ready asks all servers that are not set aside, and returns nil if one of them
// can answer. Otherwise a fault that concerns every request (Denied, Invalid) counts
// more than one that may pass. A server that hangs holds up no other one.
func (b *Balancer) Ready(ctx context.Context) (string, error) {
	b.mu.Lock()
	var asked []*server
	for _, s := range b.servers {
		if !s.breaker.setAside() {
			asked = append(asked, s)
		}
	}
	err := b.allSetAside()
	b.mu.Unlock()
	if len(asked) == 0 {
		return "", err
	}
	type reply struct {
		model string
		err   error
	}
	replies := make([]reply, len(asked))
	within, cancel := context.WithTimeout(ctx, readyTime)
	defer cancel()
	var all sync.WaitGroup
	for i, s := range asked {
		all.Go(func() {
			replies[i].model, replies[i].err = s.Server.Ready(within)
			if replies[i].err == nil {
				time.AfterFunc(othersTime, cancel)
				ctx, cancel := context.WithTimeout(within, questionTime)
				defer cancel()
				_, _ = b.fetchMetrics(ctx, s) // learns the server's start, if it reports one
			} else if within.Err() != nil && ctx.Err() == nil {
				replies[i].err = fault.New(fault.Unavailable, "server %s does not say within %s whether it is ready",
					s.Name, readyTime)
			}
		})
	}
	all.Wait()
	for _, r := range replies {
		if r.err == nil {
			return r.model, nil
		}
	}
	for _, r := range replies {
		if fault.Is(r.err, fault.Denied) || fault.Is(r.err, fault.Invalid) {
			return "", r.err
		}
	}
	return "", replies[0].err
}

// Models returns the models that the first server that lists any listed when it was
// asked whether it is ready; nil if none does.
func (b *Balancer) Models() []string {
	for _, s := range b.servers {
		if lists, ok := s.Server.(interface{ Models() []string }); ok {
			if names := lists.Models(); len(names) > 0 {
				return names
			}
		}
	}
	return nil
}

// IsAlias reports whether the server lists both names for the same model.
func (b *Balancer) IsAlias(server, x, y string) bool {
	for _, s := range b.servers {
		if s.Name == server {
			lists, ok := s.Server.(interface{ IsAlias(x, y string) bool })
			return ok && lists.IsAlias(x, y)
		}
	}
	return false
}

// Limit returns how many requests the caller should make at once: Config's
// number, or else the sum of the limits of the servers that are not set aside.
func (b *Balancer) Limit() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.limit()
}

func (b *Balancer) limit() int {
	if b.fixed > 0 {
		return b.fixed
	}
	sum := 0
	for _, s := range b.servers {
		if !s.breaker.setAside() {
			sum += s.concurrency.limit
		}
	}
	return max(sum, b.min)
}

// LimitChanges returns a channel that gets a value when Limit may have changed.
func (b *Balancer) LimitChanges() <-chan struct{} { return b.changes }

// limitChanged reports whether the limit differs from the last call's. The
// caller holds b.mu, and calls announceLimit afterwards if so.
func (b *Balancer) limitChanged() bool {
	n := b.limit()
	changed := n != b.lastLimit
	b.lastLimit = n
	return changed
}

func (b *Balancer) announceLimit() {
	select {
	case b.changes <- struct{}{}:
	default:
	}
}

// ServerStatus describes a server for monitoring.
type ServerStatus struct {
	Name     string
	State    State
	InFlight int
	Limit    int    // 0: it has no limit of its own
	Waiting  int    // requests in its queue, as it reported last; negative if it does not
	Start    string // names the server's start, if it reports one
	Why      string // its last error; "" if it works
}

// ServerStatuses returns the servers' status, in the order of the config.
func (b *Balancer) ServerStatuses() []ServerStatus {
	b.mu.Lock()
	defer b.mu.Unlock()
	out := make([]ServerStatus, len(b.servers))
	for i, s := range b.servers {
		out[i] = ServerStatus{Name: s.Name, State: s.breaker.state, InFlight: s.inFlight, Waiting: s.waiting, Start: s.start}
		if s.concurrency != nil {
			out[i].Limit = s.concurrency.limit
		}
		if s.lastErr != nil && s.breaker.state != Closed {
			out[i].Why = s.lastErr.Error()
		}
	}
	return out
}

// Close closes the servers, which ends answers in flight. Further calls are
// allowed.
func (b *Balancer) Close() error {
	b.mu.Lock()
	b.closed = true
	for _, s := range b.servers {
		s.settle(false)
	}
	b.mu.Unlock()
	b.end()
	var errs []error
	for _, s := range b.servers {
		errs = append(errs, s.Server.Close())
	}
	b.work.Wait()
	return errors.Join(errs...)
}
