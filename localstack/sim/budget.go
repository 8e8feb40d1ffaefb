package sim

import (
	"context"
	"encoding/json"
	"math"
	"strings"
	"sync"
	"time"

	"rollout/gpuworker/engine"
	"rollout/shared/core/cost"
	"rollout/shared/core/identity"
	"rollout/shared/core/run"
	"rollout/shared/core/shard"
	"rollout/shared/record"
)

// spending is what the engine was asked and has answered, and when runs had to end. It
// is safe for concurrent use.
type spending struct {
	mu      sync.Mutex
	run     identity.RunID               // that is under way
	ends    map[identity.RunID]time.Time // when its desired end was written
	answers []answered                   // of the run under way
	largest cost.Spend                   // by an answer with its prompt
	longest time.Duration                // of a request
	ended   map[string]time.Time         // when a worker ended without giving its shards back
	bodies  map[string]answered          // the last answer to a request, by its body
	asked   []asked                      // in a rollout, but by processes that were frozen
	known   map[question]bool            // those that were answered, in a rollout
}

// asked is a request that began.
type asked struct {
	question
	at    time.Time
	known bool // the worker has an answer
}

// question is a request of a worker.
type question struct{ worker, body string }

// answered is a request that has its answer.
type answered struct {
	worker string
	at     time.Time
	tokens int64
}

// follow says that a run is under way from now on.
func (s *spending) follow(id identity.RunID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.run, s.answers, s.bodies, s.known = id, nil, map[string]answered{}, map[question]bool{}
	s.largest, s.longest = cost.Spend{}, 0
}

// askedLate is how long after the desired end of a run was written a request may begin.
// A worker reads it after each heartbeat, and ends if it can write none for SelfFence.
func (w *world) askedLate() time.Duration { return w.timings.SelfFence + 2*w.timings.Interval }

// begin notes that a request begins, and checks that this is not long after its run had to
// end.
func (s *spending) begin(p *process, r engine.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p.world.tickets != nil && !p.wasFrozen.Load() && !p.dead.Load() {
		q := question{p.name, string(r.Body)}
		s.asked = append(s.asked, asked{q, time.Now(), s.known[q]})
	}
	if end, ok := s.ends[s.run]; ok && time.Since(end) > p.world.askedLate() && !p.wasFrozen.Load() && !p.dead.Load() {
		p.world.audit.mu.Lock()
		defer p.world.audit.mu.Unlock()
		p.world.audit.breakf("%s asks the engine %s after the end of its run", p.name, time.Since(end))
	}
}

// control notes when a run has to end.
func (s *spending) control(key string, value []byte) {
	id, ok := strings.CutPrefix(key, record.ControlKey(""))
	var c record.Control
	if !ok || json.Unmarshal(value, &c) != nil || c.Desired != record.DesiredEnd {
		return
	}
	s.mustEnd(identity.RunID(id))
}

// mustEnd notes that the run has to end from now on.
func (s *spending) mustEnd(id identity.RunID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ends == nil {
		s.ends = map[identity.RunID]time.Time{}
	}
	if _, known := s.ends[id]; !known {
		s.ends[id] = time.Now()
	}
}

// endOf returns when the run had to end.
func (s *spending) endOf(id identity.RunID) (at time.Time, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	at, ok = s.ends[id]
	return at, ok
}

// answer notes that the worker has an answer to the request.
func (s *spending) answer(worker string, r engine.Request, u engine.Usage) {
	s.mu.Lock()
	defer s.mu.Unlock()
	tokens := u.PromptTokens + u.CompletionTokens
	a := answered{worker, time.Now(), tokens}
	s.answers = append(s.answers, a)
	s.bodies[string(r.Body)] = a
	s.known[question{worker, string(r.Body)}] = true
	usd := cost.Micros(tokenPrices().NanoUSD(u.PromptTokens, u.CompletionTokens))
	s.largest = s.largest.AtLeast(cost.Spend{Tokens: tokens, MicroUSD: usd})
}

// lasted notes how long a request was in flight.
func (s *spending) lasted(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.longest = max(s.longest, d)
}

// betweenTries is how long at most an item keeps its slot after a request, and with it the
// machine busy, until it looks at its shard's allowance again.
const betweenTries = 30 * time.Second

// end notes that the worker ends now, and takes with it what it has not saved.
func (s *spending) end(worker string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended == nil {
		s.ended = map[string]time.Time{}
	}
	if _, known := s.ended[worker]; !known {
		s.ended[worker] = time.Now()
	}
}

// checkBudget checks that the run has spent no more than its budgets, but for one
// request of each shard that was in flight at once and, of dollars, for the machines' time
// before requests and that of the last ones; and that the documents say what it
// has spent, but for what a worker answered between its last heartbeat and its crash.
func (s *scenario) checkBudget(ctx context.Context, st run.State) {
	budget := cost.LimitOf(s.cfg.Limits.Tokens, s.cfg.Limits.Dollars)
	if budget.IsZero() {
		return
	}
	var counts shard.Counts
	var before float64 // dollars of the machines' time before requests
	for n := range st.Shards {
		d, err := s.docs.Get(ctx, identity.ShardKey(s.id, n))
		if err != nil {
			continue // it was never claimed
		}
		var doc shard.Doc
		if err := json.Unmarshal(d.Value, &doc); err != nil {
			s.t.Fatal(err)
		}
		counts.Add(doc.Counts)
		for _, use := range doc.Counts.Machines {
			before += use.Of(use.Boot + use.Idle)
		}
	}
	spent, counted := counts.Spend(), counts.Tokens()
	l := &s.spending
	l.mu.Lock()
	defer l.mu.Unlock()
	var all, lost int64
	for _, a := range l.answers {
		all += a.tokens
		if end, ok := l.ended[a.worker]; ok && end.Sub(a.at) < s.timings.SelfFence+s.timings.Interval {
			lost += a.tokens
		}
	}
	most := budget.Plus(l.largest.Times(s.audit.widest[s.id]))
	usd := before + machineHour*(l.longest+betweenTries).Hours()*float64(s.machines.count())
	most.MicroUSD += 1 + int64(math.Ceil(usd*1e6))
	s.tracef("budget: %+v of %+v are spent, at most %+v", spent, budget, most)
	if budget.Tokens > 0 && spent.Tokens > most.Tokens || budget.MicroUSD > 0 && spent.MicroUSD > most.MicroUSD {
		s.audit.breakf("%+v are spent of a budget of %+v, want at most %+v", spent, budget, most)
	}
	if st.Reason == run.ReasonBudget && !st.Counts.Spend().Reaches(budget) && !spent.Reaches(budget) {
		s.audit.breakf("the budget of %+v is used up when %+v are spent", budget, spent)
	}
	if counted > all {
		s.audit.breakf("the documents count %d tokens, the engine has answered with %d", counted, all)
	}
	if st.Reason == run.ReasonDone && all > counted+lost {
		s.audit.breakf("the engine has answered with %d tokens, the documents count %d, and %d may be lost",
			all, counted, lost)
	}
}
