package ratelimit_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"rollout/shared/core/ratelimit"
)

var start = time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)

// failer is what a test and a property have in common.
type failer interface {
	Helper()
	Fatalf(format string, args ...any)
}

// pool simulates the workers of a pool over one document. Each worker has its own
// clock, and a write takes a while after its read.
type pool struct {
	tb       failer
	rand     *rand.Rand
	rules    ratelimit.Rules
	step     time.Duration // the resolution
	now      time.Time
	doc      ratelimit.Doc
	revision int
	writes   []time.Time
	workers  []*simulated
	made     int
	begun    []begun
	crashed  []crash
	server   *server     // nil: there is none, and no answers
	lost     []time.Time // when a slice had expired whose worker lives
}

// begun is a request that began.
type begun struct {
	at     time.Time
	worker string
	cost   ratelimit.Amount
}

// crash is the share that a worker had when it was killed, or could not renew it in time.
type crash struct {
	at    time.Time
	share ratelimit.Amount
}

// simulated is one worker.
type simulated struct {
	name    string
	skew    time.Duration
	lease   *ratelimit.Lease
	pending []ratelimit.Amount // costs of the requests that wait, the first first
	rate    float64            // requests that arrive a second; negative: one always waits
	cost    func() int64       // tokens of the next request
	write   *write
	asked   []asked          // requests that wait for their answers
	held    ratelimit.Amount // the share of its last slice
}

// write is a write of the document under way.
type write struct {
	doc      ratelimit.Doc
	revision int
	asked    time.Time // by the worker's clock
	at       time.Time
}

func newPool(tb failer, seed uint64, limit ratelimit.Amount, skew time.Duration) *pool {
	return &pool{tb: tb, rand: rand.New(rand.NewPCG(seed, 1)), now: start, step: 50 * time.Millisecond,
		rules: ratelimit.Rules{Limit: limit, Skew: skew}}
}

// add starts a worker.
func (p *pool) add(rate float64, cost func() int64) *simulated {
	p.made++
	w := &simulated{name: fmt.Sprintf("w%03d", p.made), rate: rate, cost: cost}
	if p.rules.Skew > 0 { // two clocks differ by no more than the skew
		w.skew = time.Duration(p.rand.Int64N(int64(p.rules.Skew))) - p.rules.Skew/2
	}
	w.lease = ratelimit.NewLease(p.rules, w.name, p.server != nil, p.now.Add(w.skew))
	p.workers = append(p.workers, w)
	return w
}

// kill ends a worker without a word.
func (p *pool) kill(w *simulated) {
	p.crashed = append(p.crashed, crash{p.now, w.lease.Share(p.now.Add(w.skew))})
	p.workers = slices.DeleteFunc(p.workers, func(x *simulated) bool { return x == w })
}

// run simulates for d.
func (p *pool) run(d time.Duration) {
	for end := p.now.Add(d); p.now.Before(end); p.now = p.now.Add(p.step) {
		for _, i := range p.rand.Perm(len(p.workers)) {
			p.stepWorker(p.workers[i])
		}
	}
}

func (p *pool) stepWorker(w *simulated) {
	now := p.now.Add(w.skew)
	p.answer(w, now)
	arrivals := 0
	if w.rate >= 0 && p.rand.Float64() < w.rate*p.step.Seconds() {
		arrivals = 1
	}
	for w.rate < 0 && len(w.pending)+arrivals < 60 {
		arrivals++
	}
	for range arrivals {
		w.pending = append(w.pending, ratelimit.Amount{Requests: 1, Tokens: w.cost()})
	}
	for len(w.pending) > 0 && (p.server == nil || len(w.asked) < p.server.inFlight) {
		w.pending[0] = w.lease.Within(w.pending[0])
		at, ok := w.lease.Next(w.pending[0], now)
		if !ok || at.After(now) {
			break
		}
		number := w.lease.Begin(w.pending[0], now)
		if p.server != nil {
			a := p.server.ask(p.now, now, number, w.pending[0])
			a.nth = len(p.begun)
			w.asked = append(w.asked, a)
		}
		p.begun = append(p.begun, begun{p.now, w.name, ratelimit.Amount{Requests: 1, Tokens: w.pending[0].Tokens}})
		w.pending = w.pending[1:]
	}
	if w.write != nil {
		if p.now.Before(w.write.at) {
			return
		}
		if w.write.revision == p.revision {
			p.doc, p.revision = w.write.doc, p.revision+1
			p.writes = append(p.writes, p.now)
			w.lease.Saved(w.write.doc, w.write.asked)
			g, _ := p.doc.Grant(w.name)
			w.held = g.Share
			p.checkDoc()
			p.countLost()
		}
		w.write = nil
	}
	demand := ratelimit.Demand{Waiting: len(w.pending)}
	if p.server != nil && len(w.asked) == p.server.inFlight {
		demand.Waiting = 0 // they wait for a slot
	}
	for _, c := range w.pending {
		demand.Largest = demand.Largest.Max(c)
	}
	if at, ok := w.lease.NextLook(demand); !ok || now.Before(at) {
		return
	}
	if next, ok := w.lease.Look(p.doc, demand, now); ok {
		w.write = &write{next, p.revision, now, p.now.Add(time.Duration(p.rand.IntN(4)) * p.step)}
	}
}

// countLost finds the workers with a slice that the document does not have: it expired
// because others wrote first. The limit then holds as after a crash.
func (p *pool) countLost() {
	for _, w := range p.workers {
		_, ok := p.doc.Grant(w.name)
		if _, held := w.lease.NextLook(ratelimit.Demand{}); held && !ok {
			p.lost = append(p.lost, p.now)
			p.crashed = append(p.crashed, crash{p.now, w.held})
			w.held = ratelimit.Amount{}
		}
	}
}

// checkDoc checks that no more is granted than there is, but for the shares of workers
// that crashed: one that comes back says what it had used.
func (p *pool) checkDoc() {
	sum := ratelimit.Amount{}
	for _, g := range p.doc.Grants {
		sum = sum.Plus(g.Share)
	}
	for _, c := range p.doc.Cooling {
		sum = sum.Plus(c.Amount)
	}
	if p.server == nil && !sum.Within(p.allowed(p.now)) { // a limit that is learnt changes
		p.tb.Fatalf("%s: the document grants %+v of %+v to %d workers", p.now.Sub(start), sum,
			p.rules.Limit, len(p.doc.Grants))
	}
	if b, err := json.Marshal(p.doc); err != nil || len(b) > 64<<10 {
		p.tb.Fatalf("the document has %d bytes: %v", len(b), err)
	}
}

// allowed returns the limit with the shares of workers that crashed less than two
// minutes before a time.
func (p *pool) allowed(at time.Time) ratelimit.Amount {
	allowed := p.rules.Limit
	for _, c := range p.crashed {
		if since := at.Sub(c.at); since >= 0 && since < 2*time.Minute+ratelimit.Length(len(p.workers)) {
			allowed = allowed.Plus(c.share)
		}
	}
	return allowed
}

// checkLimit checks that no minute exceeds the limit, but for the shares of workers
// that crashed less than two minutes before.
func (p *pool) checkLimit() {
	p.tb.Helper()
	sum, first := ratelimit.Amount{}, 0
	for _, b := range p.begun {
		sum = sum.Plus(b.cost)
		for ; b.at.Sub(p.begun[first].at) >= time.Minute; first++ {
			sum = sum.Minus(p.begun[first].cost)
		}
		allowed := p.allowed(b.at)
		if !sum.Of(p.rules.Limit).Within(allowed) {
			p.tb.Fatalf("%+v began within the minute before %s, with a limit of %+v (%+v with crashed shares)",
				sum, b.at.Sub(start), p.rules.Limit, allowed)
		}
	}
}

// checkWrites checks that the document was written at most once a second, after the
// given time, in any ten seconds.
func (p *pool) checkWrites() {
	p.tb.Helper()
	for i := 10; i < len(p.writes); i++ {
		// A write lands a little after the time that it was decided at.
		if d := p.writes[i].Sub(p.writes[i-10]); d < 10*time.Second-p.rules.Skew-4*p.step {
			p.tb.Fatalf("11 writes within %s before %s", d, p.writes[i].Sub(start))
		}
	}
}

// since returns what began from a time on, by worker and in all.
func (p *pool) since(at time.Time) (byWorker map[string]ratelimit.Amount, all ratelimit.Amount) {
	byWorker = map[string]ratelimit.Amount{}
	for _, b := range p.begun {
		if !b.at.Before(at) {
			byWorker[b.worker] = byWorker[b.worker].Plus(b.cost)
			all = all.Plus(b.cost)
		}
	}
	return byWorker, all
}

func tokens(n int64) func() int64 { return func() int64 { return n } }
