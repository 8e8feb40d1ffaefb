package ratelimit_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"pgregory.net/rapid"

	"rollout/shared/core/ratelimit"
)

// server is a server that refuses what exceeds its limit.
type server struct {
	limit    ratelimit.Amount
	bucket   bool       // it refills all the time; else it looks at the last minute
	states   bool       // it states its limit
	noWait   bool       // its refusals name no wait
	chance   int        // it refuses so many of a hundred requests, whatever it was asked before
	quota    bool       // a quota of a day is used up
	atOnce   int        // the most requests at once; 0 sets no limit
	hostile  *rand.Rand // it says anything; nil: it does not
	inFlight int        // of each worker
	took     time.Duration

	accepted []begun
	seen     int64
	level    float64 // of the bucket, in requests
	filled   time.Time
	running  []time.Time // when they end
	refused  []time.Time
}

// asked is a request on its way.
type asked struct {
	number int64
	began  time.Time // by the worker's clock
	at     time.Time // when the answer comes
	cost   ratelimit.Amount
	says   ratelimit.Report
	nth    int  // of the pool's requests
	rests  bool // it was refused, and backs off until then
}

// ask answers a request.
func (s *server) ask(at, began time.Time, number int64, cost ratelimit.Amount) asked {
	a := asked{number: number, began: began, at: at.Add(s.took), cost: cost}
	if s.states {
		a.says.Limit = s.limit
	}
	if s.hostile != nil {
		a.says = anyReport(s.hostile)
		return a
	}
	wait, ok := s.admits(at, cost)
	if !ok {
		s.refused = append(s.refused, at)
		a.at = at.Add(50 * time.Millisecond)
		a.says.Refused, a.says.OfTokens = true, s.limit.Tokens > 0
		if !s.noWait {
			a.says.Wait = wait
		}
		return a
	}
	s.accepted = append(s.accepted, begun{at: at, cost: cost})
	s.running = append(s.running, a.at)
	return a
}

// admits reports whether the server takes a request now, or when it may.
func (s *server) admits(at time.Time, cost ratelimit.Amount) (wait time.Duration, ok bool) {
	if s.quota {
		return 3 * time.Hour, false
	}
	if s.chance > 0 {
		s.seen++
		return 0, s.seen*int64(s.chance)%100 >= int64(s.chance)
	}
	if s.atOnce > 0 {
		n := 0
		for _, end := range s.running {
			if end.After(at) {
				s.running[n] = end
				n++
			}
		}
		s.running = s.running[:n]
		return time.Second, n < s.atOnce
	}
	if s.bucket {
		if s.filled.IsZero() {
			s.level, s.filled = float64(s.limit.Requests), at
		}
		perSecond := float64(s.limit.Requests) / 60
		s.level = min(s.level+at.Sub(s.filled).Seconds()*perSecond, float64(s.limit.Requests))
		s.filled = at
		if s.level < 1 {
			return time.Duration((1 - s.level) / perSecond * float64(time.Second)), false
		}
		s.level--
		return 0, true
	}
	used := cost
	first := time.Time{}
	for i := len(s.accepted) - 1; i >= 0 && at.Sub(s.accepted[i].at) < time.Minute; i-- {
		used, first = used.Plus(s.accepted[i].cost), s.accepted[i].at
	}
	if used.Of(s.limit).Within(s.limit) {
		return 0, true
	}
	return time.Second + time.Minute - at.Sub(first), false
}

// answer lets the answers come that are due.
func (p *pool) answer(w *simulated, now time.Time) {
	rest := w.asked[:0]
	for _, a := range w.asked {
		if a.at.After(p.now) {
			rest = append(rest, a)
			continue
		}
		if a.rests {
			w.pending = append([]ratelimit.Amount{a.cost}, w.pending...)
			continue
		}
		w.lease.Report(a.says, a.number, a.cost, a.began, now)
		if a.says.Refused { // it is asked again, and does not count
			p.begun[a.nth].cost = ratelimit.Amount{}
			a.at, a.rests = p.now.Add(time.Second), true
			rest = append(rest, a)
		} else {
			w.lease.Settle(a.number, a.cost, a.cost, now)
		}
	}
	w.asked = rest
}

// within counts what a list has in a span.
func within(at []time.Time, from, until time.Duration) (n int) {
	for _, t := range at {
		if d := t.Sub(start); d >= from && d < until {
			n++
		}
	}
	return n
}

// learning returns a pool over a server with a limit.
func learning(t *testing.T, s *server, workers int) *pool {
	p := newPool(t, 11, ratelimit.Amount{}, 0)
	p.server = s
	for range workers {
		p.add(always, tokens(100))
	}
	return p
}

// After the first minute the server has nothing to refuse, and nearly all of its limit is
// used: whether it states the limit or only refuses.
func TestWorkersKeepToALimitThatTheyLearn(t *testing.T) {
	t.Parallel()
	for _, workers := range []int{1, 3} {
		for name, s := range map[string]server{
			"stated":                         {states: true, took: 200 * time.Millisecond},
			"refusals":                       {took: 200 * time.Millisecond},
			"refusals of slow answers":       {took: 3 * time.Second},
			"refusals after nearly a minute": {took: time.Duration(workers) * 5800 * time.Millisecond},
			"stated tokens":                  {states: true, limit: ratelimit.Amount{Tokens: 60_000}, took: time.Second},
			"refusals of tokens":             {limit: ratelimit.Amount{Tokens: 60_000}, took: time.Second},
			"both stated": {states: true, limit: ratelimit.Amount{Requests: 600, Tokens: 1e6},
				took: time.Second},
		} {
			t.Run(fmt.Sprintf("%d/%s", workers, name), func(t *testing.T) {
				t.Parallel()
				if s.limit.IsZero() {
					s.limit.Requests = 600
				}
				s.inFlight = 64
				p := learning(t, &s, workers)
				p.run(5 * time.Minute)
				p.checkWrites()
				if n := within(s.refused, time.Minute+5*time.Second, 5*time.Minute); n > 0 {
					t.Errorf("%d requests are refused after the first minute", n)
				}
				used := ratelimit.Amount{}
				for _, b := range s.accepted {
					if b.at.Sub(start) >= 2*time.Minute {
						used = used.Plus(b.cost)
					}
				}
				share := ratio(used.Requests, 3*s.limit.Requests)
				if s.limit.Requests == 0 {
					share = ratio(used.Tokens, 3*s.limit.Tokens)
				}
				least := 0.95
				if name == "refusals after nearly a minute" && workers > 1 { // they are refused at different times
					least = 0.85
				}
				if share < least {
					t.Errorf("%.1f %% of the limit are used from the second minute on", 100*share)
				}
				t.Logf("%.1f %% used, %d refused in all, %d writes", 100*share, len(s.refused), len(p.writes))
			})
		}
	}
}

// A server that refuses without a wait, and one that refills its limit all the time, are
// found out as well, if not as exactly.
func TestEstimateFollowsWhatRefusalsShow(t *testing.T) {
	t.Parallel()
	for name, s := range map[string]server{
		"no wait":      {noWait: true},
		"refills":      {bucket: true},
		"refills only": {bucket: true, noWait: true},
	} {
		for _, workers := range []int{1, 3} {
			t.Run(fmt.Sprintf("%s/%d", name, workers), func(t *testing.T) {
				t.Parallel()
				s := s
				s.limit, s.inFlight, s.took = ratelimit.Amount{Requests: 600}, 64, 500*time.Millisecond
				p := learning(t, &s, workers)
				p.run(20 * time.Minute)
				accepted := within(times(s.accepted), 10*time.Minute, 20*time.Minute)
				refused := within(s.refused, 10*time.Minute, 20*time.Minute)
				if accepted < 600*10*85/100 {
					t.Errorf("%d requests are answered in ten minutes, 6000 are allowed", accepted)
				}
				if refused > accepted*3/100 {
					t.Errorf("%d requests are refused in ten minutes, %d are answered", refused, accepted)
				}
				t.Logf("%d accepted, %d refused", accepted, refused)
			})
		}
	}
}

// A server that takes fewer requests at once than it gets, and says nothing of that, keeps
// most of its throughput.
func TestLimitOnRequestsAtOnceIsNotTakenForOneOfAMinute(t *testing.T) {
	t.Parallel()
	s := &server{atOnce: 40, inFlight: 48, took: time.Second}
	p := learning(t, s, 1)
	p.run(10 * time.Minute)
	if n := len(s.accepted); n < 10*60*40/2 {
		t.Errorf("%d requests are answered in ten minutes, %d are possible", n, 10*60*40)
	}
}

// A server that refuses by chance is asked hardly less.
func TestRefusalsByChanceAreNoLimit(t *testing.T) {
	t.Parallel()
	for _, chance := range []int{1, 2, 8} {
		t.Run(fmt.Sprint(chance), func(t *testing.T) {
			t.Parallel()
			s := &server{chance: chance, noWait: true, inFlight: 16, took: 2 * time.Second}
			p := learning(t, s, 1)
			p.run(time.Hour)
			const possible = 16 / 2 * 300
			for _, until := range []time.Duration{5 * time.Minute, 30 * time.Minute, time.Hour} {
				least := possible * 8 / 10
				if chance > 3 && until == 5*time.Minute { // they are taken for a limit at first
					least = possible * 4 / 10
				}
				if n := within(times(s.accepted), until-5*time.Minute, until); n < least {
					t.Errorf("%d requests are answered in the five minutes before %s, %d are possible", n, until, possible)
				}
			}
		})
	}
}

// A quota of a day that is used up leaves no limit of a minute behind.
func TestAUsedUpQuotaIsNoLimitOfAMinute(t *testing.T) {
	t.Parallel()
	s := &server{quota: true, inFlight: 16, took: time.Second}
	p := learning(t, s, 2)
	p.run(31 * time.Minute)
	if n := len(s.refused); n > 7*32 {
		t.Errorf("%d requests were refused within half an hour without a quota", n)
	}
	s.quota, s.limit = false, ratelimit.Amount{Requests: 600}
	from := p.now.Sub(start)
	p.run(10 * time.Minute)
	if n := within(times(s.accepted), from+6*time.Minute, from+10*time.Minute); n < 4*570 {
		t.Errorf("%d requests are answered in four minutes after there was a quota again", n)
	}
}

// A raised limit is found out, by one refusal in many minutes.
func TestEstimateGrowsWithTheLimit(t *testing.T) {
	t.Parallel()
	s := &server{limit: ratelimit.Amount{Requests: 300}, inFlight: 64, took: 200 * time.Millisecond}
	p := learning(t, s, 1)
	p.run(2 * time.Minute)
	s.limit.Requests = 1200
	p.run(time.Hour)
	n := within(times(s.accepted), 57*time.Minute, 62*time.Minute)
	if n < 5*1000 {
		t.Errorf("%d requests are answered in five minutes, an hour after the limit was raised to 1200 a minute", n)
	}
	if n := within(s.refused, 3*time.Minute, 62*time.Minute); n > 200 {
		t.Errorf("%d requests are refused", n)
	}
}

func times(of []begun) (at []time.Time) {
	for _, b := range of {
		at = append(at, b.at)
	}
	return at
}

// What a server says can't stop a pool for long, and raises no limit of the config.
func TestAbsurdReportsAreBounded(t *testing.T) {
	t.Parallel()
	config := ratelimit.Amount{Requests: 600}
	for name, r := range map[string]ratelimit.Report{
		"a wait of a year":   {Refused: true, Wait: 365 * 24 * time.Hour},
		"a negative wait":    {Refused: true, Wait: -time.Hour},
		"a limit of nothing": {Limit: ratelimit.Amount{Requests: -5, Tokens: 0}},
		"a huge limit":       {Limit: ratelimit.Amount{Requests: 1 << 62, Tokens: 1 << 62}},
		"a higher limit":     {Limit: ratelimit.Amount{Requests: 6000}},
		"the lowest limit":   {Limit: ratelimit.Amount{Requests: 1, Tokens: 1}},
	} {
		l := ratelimit.NewLease(ratelimit.Rules{Limit: config}, "w", true, start)
		cost := ratelimit.Amount{Requests: 1, Tokens: 1}
		n := l.Begin(cost, start)
		l.Report(r, n, cost, start, start)
		if got := l.Limit(); got.Requests == 0 || got.Requests > 600 {
			t.Errorf("%s: the limit is %+v", name, got)
		}
		now := start.Add(ratelimit.MaxWait + time.Second)
		d, ok := l.Look(ratelimit.Doc{}, ratelimit.Demand{Waiting: 1, Largest: cost}, now)
		if !ok {
			t.Fatalf("%s: no slice", name)
		}
		l.Saved(d, now)
		if at, ok := l.Next(cost, now); !ok || at.Sub(now) > time.Minute+time.Second {
			t.Errorf("%s: the next request begins at %s (%v)", name, at.Sub(start), ok)
		}
	}
}

// anyReport returns what no server should say.
func anyReport(r *rand.Rand) (says ratelimit.Report) {
	any64 := func() int64 { return []int64{0, 1, -1, 7, 600, 5000, 1 << 40, 1 << 62, -1 << 62}[r.IntN(9)] }
	if r.IntN(3) == 0 {
		says.Limit = ratelimit.Amount{Requests: any64(), Tokens: any64()}
	}
	says.Refused, says.AtOnce, says.OfTokens = r.IntN(3) == 0, r.IntN(8) == 0, r.IntN(4) == 0
	if r.IntN(3) == 0 {
		says.Wait = time.Duration(any64()) * time.Duration(1+r.IntN(1_000_000_000))
	}
	return says
}

// Whatever a server says, the workers keep to the limit of the config and to their writes,
// and none of them stops for good.
func TestHostileServersNeitherRaiseALimitNorStopAPool(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		seed := rapid.Uint64().Draw(rt, "seed")
		p := newPool(rt, seed, ratelimit.Amount{Requests: rapid.Int64Range(1, 1000).Draw(rt, "requests")}, 0)
		p.step *= 10
		p.server = &server{inFlight: 8, took: time.Second, hostile: rand.New(rand.NewPCG(seed, 2))}
		for range rapid.IntRange(1, 3).Draw(rt, "workers") {
			p.add(always, tokens(100))
		}
		const quiet = ratelimit.MaxWait + 4*time.Minute // a wait, a turn of each, and a minute until a permit is free
		for range 3 {
			before := len(p.begun)
			p.run(quiet)
			if len(p.begun) == before {
				rt.Fatalf("no request began within %s; the document has %+v", quiet, p.doc.Learnt)
			}
		}
		p.checkLimit()
		p.checkWrites()
	})
}

// A wait that one worker met holds for all, and is over for all.
func TestAWaitHoldsForThePool(t *testing.T) {
	t.Parallel()
	rules := ratelimit.Rules{Limit: ratelimit.Amount{Requests: 600}}
	a, b := ratelimit.NewLease(rules, "a", true, start), ratelimit.NewLease(rules, "b", true, start)
	one := ratelimit.Amount{Requests: 1}
	busy := ratelimit.Demand{Waiting: 1, Largest: one}
	now := start
	var d ratelimit.Doc
	for range 10 { // both take shares
		for _, l := range []*ratelimit.Lease{a, b} {
			if next, ok := l.Look(d, busy, now); ok {
				d = next
				l.Saved(d, now)
			}
			now = now.Add(1600 * time.Millisecond)
		}
	}
	n := a.Begin(one, now)
	a.Report(ratelimit.Report{Refused: true, Wait: 7 * time.Second}, n, one, now, now)
	until := now.Add(7 * time.Second)
	for range 4 {
		for _, l := range []*ratelimit.Lease{a, b} {
			now = now.Add(800 * time.Millisecond)
			if next, ok := l.Look(d, busy, now); ok {
				d = next
				l.Saved(d, now)
			}
		}
	}
	for name, l := range map[string]*ratelimit.Lease{"a": a, "b": b} {
		if at, ok := l.Next(one, now); ok && at.Before(until) {
			t.Errorf("%s begins the next request %s before the end of the wait", name, until.Sub(at))
		}
		if !l.WaitUntil().Equal(until) {
			t.Errorf("%s waits until %s, want %s", name, l.WaitUntil(), until)
		}
	}
}

// What was learnt is forgotten when nothing was said for long.
func TestWhatWasLearntIsForgotten(t *testing.T) {
	t.Parallel()
	s := &server{states: true, limit: ratelimit.Amount{Requests: 600}, inFlight: 8, took: time.Second}
	p := learning(t, s, 1)
	p.run(time.Minute)
	if p.doc.Learnt.Stated.Requests != 600 {
		t.Fatalf("the document has %+v", p.doc.Learnt)
	}
	later := ratelimit.NewLease(ratelimit.Rules{}, "later", true, p.now)
	later.Look(p.doc, ratelimit.Demand{}, p.now)
	if got := later.Limit(); got.Requests != 600 || got.RequestsFrom != ratelimit.FromHeaders {
		t.Errorf("a worker that begins later knows %+v", got)
	}
	later = ratelimit.NewLease(ratelimit.Rules{}, "much later", true, p.now)
	later.Look(p.doc, ratelimit.Demand{}, p.now.Add(2*time.Hour))
	if later.IsLimited() {
		t.Errorf("two hours later a worker knows %+v", later.Limit())
	}
}
