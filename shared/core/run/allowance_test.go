package run

import (
	"encoding/json"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"rollout/shared/core/cost"
	"rollout/shared/core/interval"
	"rollout/shared/core/schedule"
	"rollout/shared/core/shard"
)

// spenders is a small model of a run with a budget in tokens, in dollars or both: holders ask the items of
// their shards one after the other, as long as their message's allowance is not used
// up. Messages and reports are lost, repeated and reordered, and holders crash.
type spenders struct {
	t      *rapid.T
	state  State
	world  Observed
	rules  Rules
	now    time.Time
	items  [][]cost.Spend // costs, by shard
	shards map[int]*spender
	work   []paidMessage
	news   []Event
	faults bool
	// asked is what all items that were asked took, lost the part of it that no
	// document knows because a holder crashed.
	asked, lost cost.Spend
	largest     cost.Spend // cost of one item
	widest      int        // shards in flight at once
	handBacks   int
	attributes  func(n int) schedule.Attributes
}

// spender is a shard's document and its holder.
type spender struct {
	answered int        // items in the checkpoint
	spent    cost.Spend // in the document
	done     bool
	holder   *paidMessage // the claim's; nil without a holder
	ahead    int          // items that the holder has answered since the checkpoint
	cost     cost.Spend   // of those
}

type paidMessage struct {
	n         int
	allowance cost.Spend
}

func newSpenders(t *rapid.T) *spenders {
	w := &spenders{t: t, state: New(testRun), now: epoch, shards: map[int]*spender{}, faults: true,
		attributes: drawAttributes(t)}
	costs := rapid.SliceOfN(rapid.Int64Range(1, 100), 1, 5).Draw(t, "costs")
	dear := rapid.SampledFrom([]int64{1, 7, 100_000}).Draw(t, "dear")
	shards, items := rapid.IntRange(1, 60).Draw(t, "shards"), rapid.IntRange(1, 12).Draw(t, "items")
	for n := range shards {
		var of []cost.Spend
		for i := range items {
			c := cost.Spend{Tokens: costs[(n*31+i*7)%len(costs)], MicroUSD: dear * costs[(n*5+i*3)%len(costs)]}
			of, w.largest = append(of, c), w.largest.AtLeast(c)
		}
		w.items = append(w.items, of)
	}
	w.rules = Rules{Grace: time.Second, Constraints: drawConstraints(t)}
	has := rapid.SampledFrom([]string{"tokens", "dollars", "both"}).Draw(t, "budgets")
	if has != "dollars" {
		w.rules.Budget.Tokens = rapid.Int64Range(1, 6000).Draw(t, "budget")
	}
	if has != "tokens" {
		w.rules.Budget.MicroUSD = dear * rapid.Int64Range(1, 6000).Draw(t, "dollars")
	}
	w.world = Observed{Shards: shards, Items: uint64(shards * items), Complete: true, Pool: 64,
		Workers: rapid.IntRange(0, 20).Draw(t, "workers")}
	return w
}

func (w *spenders) of(n int) *spender {
	if w.shards[n] == nil {
		w.shards[n] = &spender{}
	}
	return w.shards[n]
}

func (w *spenders) counts(n int) shard.Counts {
	s := w.of(n)
	return shard.Counts{OK: s.answered, Failed: len(w.items[n]) - s.answered, PromptTokens: s.spent.Tokens,
		TokenNanoUSD: 1000 * s.spent.MicroUSD}
}

// step performs one step of the coordinator.
func (w *spenders) step() {
	events := w.news
	if w.faults {
		events = rapid.Permutation(events).Draw(w.t, "order")
	}
	w.state, _ = Step(w.state, withRows(w.state, w.world, w.rules, events, w.attributes, 3), w.rules, events, w.now)
	if !w.faults || rapid.IntRange(0, 3).Draw(w.t, "again") > 0 {
		w.news = nil
	}
	for _, e := range w.state.Effects {
		switch e.Kind {
		case Send:
			for n := e.Range.Lo; n < e.Range.Hi; n++ {
				w.work = append(w.work, paidMessage{n, e.Allowance})
			}
		case SetEnd:
			w.world.Sequence++
			w.world.DesiredEnd = Reason(e.Why)
		case Seal:
			for n := e.Range.Lo; n < e.Range.Hi; n++ {
				w.of(n).done, w.of(n).holder = true, nil
				w.news = append(w.news, Event{Kind: ShardDone, Shard: n, Counts: w.counts(n)})
			}
		}
	}
	w.widest = max(w.widest, w.state.InFlight.Len())
	if b, err := json.Marshal(w.state); err != nil || len(b) > 16<<10 {
		w.t.Fatalf("the state has %d bytes, %v", len(b), err)
	}
	if open := interval.Of(w.state.Open()...); w.state.Reason == "" &&
		w.state.InFlight.Len()+len(w.state.Allowances.Waiting()) != open.Len() {
		w.t.Fatalf("in flight %v, waiting %v, open %v", w.state.InFlight.Chunks, w.state.Allowances.Waiting(), open)
	}
}

// receive lets a worker receive a message.
func (w *spenders) receive(m paidMessage) {
	s := w.of(m.n)
	switch {
	case s.done:
		w.news = append(w.news, Event{Kind: ShardDone, Shard: m.n, Counts: w.counts(m.n)})
	case w.world.DesiredEnd != "", s.holder != nil:
	case s.spent.Reaches(m.allowance):
		w.usedUp(m.n, m.allowance)
	default:
		s.holder = &m
	}
}

func (w *spenders) usedUp(n int, allowance cost.Spend) {
	w.handBacks++
	w.news = append(w.news, Event{Kind: ShardUsedUp, Shard: n, Allowance: allowance, Spent: w.of(n).spent})
}

// ask lets the shard's holder ask one item, or end.
func (w *spenders) ask(n int) {
	s := w.of(n)
	switch {
	case s.holder == nil:
	case s.answered+s.ahead == len(w.items[n]):
		w.save(s)
		s.done, s.holder = true, nil
		w.news = append(w.news, Event{Kind: ShardDone, Shard: n, Counts: w.counts(n)})
	case w.world.DesiredEnd != "":
		w.release(n)
	case s.spent.Plus(s.cost).Reaches(s.holder.allowance):
		allowance := s.holder.allowance
		w.save(s)
		s.holder = nil
		w.usedUp(n, allowance)
	default:
		c := w.items[n][s.answered+s.ahead]
		w.asked, s.cost = w.asked.Plus(c), s.cost.Plus(c)
		s.ahead++
	}
}

func (w *spenders) save(s *spender) {
	s.answered, s.spent = s.answered+s.ahead, s.spent.Plus(s.cost)
	s.ahead, s.cost = 0, cost.Spend{}
}

func (w *spenders) release(n int) {
	w.save(w.of(n))
	w.of(n).holder = nil
	w.news = append(w.news, Event{Kind: ShardReleased, Shard: n})
}

// crash ends the shard's holder without a checkpoint.
func (w *spenders) crash(n int) {
	s := w.of(n)
	w.lost = w.lost.Plus(s.cost)
	s.holder, s.ahead, s.cost = nil, 0, cost.Spend{}
}

// reclaim reports the shards in flight that no worker holds.
func (w *spenders) reclaim() {
	for _, c := range w.state.InFlight.Chunks {
		for n := c.Lo; n < c.Hi; n++ {
			switch s := w.of(n); {
			case s.done:
				w.news = append(w.news, Event{Kind: ShardDone, Shard: n, Counts: w.counts(n)})
			case s.holder == nil:
				w.news = append(w.news, Event{Kind: ShardLost, Shard: n, Generation: c.Generation})
			}
		}
	}
}

// act performs one drawn action.
func (w *spenders) act() {
	t := w.t
	n := rapid.IntRange(0, len(w.items)-1).Draw(t, "shard")
	acts := []string{"step", "step", "receive", "receive", "ask", "ask", "ask", "crash", "release", "lose", "repeat",
		"reclaim"}
	switch rapid.SampledFrom(acts).Draw(t, "act") {
	case "step":
		w.step()
	case "receive":
		for range rapid.IntRange(1, 8).Draw(t, "messages") {
			if len(w.work) > 0 {
				i := rapid.IntRange(0, len(w.work)-1).Draw(t, "message")
				m := w.work[i]
				w.work = slices.Delete(w.work, i, i+1)
				w.receive(m)
			}
		}
	case "ask":
		for k := range w.items {
			for range rapid.IntRange(0, 3).Draw(t, "requests") {
				w.ask(k)
			}
		}
	case "crash":
		w.crash(n)
	case "release":
		if w.of(n).holder != nil {
			w.release(n)
		}
	case "lose":
		w.work = w.work[rapid.IntRange(0, len(w.work)).Draw(t, "lost messages"):]
		w.news = w.news[rapid.IntRange(0, len(w.news)).Draw(t, "lost reports"):]
	case "repeat":
		if len(w.work) < 200 {
			w.work = append(w.work, w.work...)
		}
	case "reclaim":
		w.reclaim()
	}
	w.now = w.now.Add(time.Second)
}

// TestBudgetIsKeptUnderFaults lets holders with items of drawn costs crash, and loses,
// repeats and reorders messages and reports. However that goes, the run spends no more
// than its budget, one request more for each shard in flight at once, and what crashed
// holders took with them. It ends, and nothing is asked after that.
func TestBudgetIsKeptUnderFaults(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w := newSpenders(t)
		for range rapid.IntRange(1, 60).Draw(t, "acts") {
			w.act()
		}
		w.faults = false
		for rounds := 0; w.state.Phase != Finalizing; rounds++ {
			if rounds > 2000 {
				b, _ := json.Marshal(w.state)
				t.Fatalf("the run does not end: %s", b)
			}
			for _, m := range w.work {
				w.receive(m)
			}
			w.work = nil
			for n := range w.items {
				w.ask(n)
			}
			w.reclaim()
			w.now = w.now.Add(time.Second)
			w.step()
		}
		most := w.rules.Budget.Plus(w.lost).Plus(w.largest.Times(w.widest))
		if over := w.asked.AtLeast(most); w.rules.Budget.Tokens > 0 && over.Tokens > most.Tokens ||
			w.rules.Budget.MicroUSD > 0 && over.MicroUSD > most.MicroUSD {
			t.Fatalf("%+v of %+v are asked, %+v are lost; at most %d shards were in flight, an item costs at most %+v",
				w.asked, w.rules.Budget, w.lost, w.widest, w.largest)
		}
		if w.state.Reason == ReasonBudget && !w.asked.Reaches(w.rules.Budget) {
			t.Fatalf("the budget of %+v is used up when %+v are asked", w.rules.Budget, w.asked)
		}
		if w.state.Reason == ReasonDone && w.state.Counts.Failed > 0 {
			t.Fatalf("the run is done, and %d items are not asked", w.state.Counts.Failed)
		}
		if w.state.Reason != ReasonBudget && w.state.Reason != ReasonDone {
			t.Fatalf("the run ends as %s", w.state.Reason)
		}
	})
}

// TestShardIsHandedBackSeldom checks that allowances grow with what shards cost: a run
// whose budget pays for all of its shards hands each back a few times at most.
func TestShardIsHandedBackSeldom(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w := newSpenders(t)
		w.faults = false
		var all cost.Spend
		for _, of := range w.items {
			for _, c := range of {
				all = all.Plus(c)
			}
		}
		if w.rules.Budget.Tokens > 0 {
			w.rules.Budget.Tokens = all.Tokens + rapid.Int64Range(1, 2*all.Tokens).Draw(t, "more")
		}
		if w.rules.Budget.MicroUSD > 0 {
			w.rules.Budget.MicroUSD = all.MicroUSD + rapid.Int64Range(1, 2*all.MicroUSD).Draw(t, "more dollars")
		}
		for rounds := 0; w.state.Phase != Finalizing && rounds < 5000; rounds++ {
			for _, m := range w.work {
				w.receive(m)
			}
			w.work = nil
			for n := range w.items {
				w.ask(n)
			}
			w.now = w.now.Add(time.Second)
			w.step()
		}
		if most := 16 + 3*len(w.items); w.state.Reason != ReasonDone || w.handBacks > most {
			t.Fatalf("the run ends as %q after %d hand-backs of %d shards, want at most %d", w.state.Reason, w.handBacks,
				len(w.items), most)
		}
	})
}

// TestStateStaysSmallWithAllowances checks that the state stays within 16 KiB while
// each of very many shards in flight has another allowance, or waits.
func TestStateStaysSmallWithAllowances(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(1, 2))
	s, w := New(testRun), Observed{Shards: 9_000_000, Items: 9_000_000, Complete: true, Pool: 1000, Workers: 300}
	s.NextShard, s.Done.Set = 5_000_000, interval.Of(interval.Range{Lo: 0, Hi: 5_000_000})
	s.Counts.PromptTokens, s.Counts.TokenNanoUSD = 5_000_000_000, 5_000_000_000_000_000
	now, highest, widest := epoch, 0, 0
	for range 400 {
		var events []Event
		for _, c := range s.InFlight.Chunks {
			for n := c.Lo; n < c.Hi; n++ {
				a, _ := s.Allowances.Of(n)
				switch rng.IntN(6) {
				case 0, 1:
					events = append(events, Event{Kind: ShardUsedUp, Shard: n, Allowance: a.Spend,
						Spent: a.Plus(cost.Spend{Tokens: rng.Int64N(1000), MicroUSD: rng.Int64N(1e6)})})
				case 2:
					events = append(events, Event{Kind: ShardDone, Shard: n,
						Counts: shard.Counts{OK: 1, PromptTokens: rng.Int64N(2000), TokenNanoUSD: rng.Int64N(2e9)}})
				case 3:
					events = append(events, Event{Kind: ShardReleased, Shard: n})
				}
			}
		}
		now = now.Add(time.Duration(rng.IntN(3000)) * time.Millisecond)
		s, _ = Step(s, w, Rules{Budget: cost.Spend{Tokens: 1 << 50, MicroUSD: 1 << 50}}, events, now)
		b, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		var read State
		if err := json.Unmarshal(b, &read); err != nil || !slices.Equal(read.Allowances, s.Allowances) {
			t.Fatalf("saved %v, read %v: %v", s.Allowances, read.Allowances, err)
		}
		highest, widest = max(highest, len(b)), max(widest, len(s.Allowances))
	}
	if highest > 16<<10 || widest < 100 {
		t.Errorf("a state has %d bytes and %d allowances", highest, widest)
	}
	t.Logf("%d bytes and %d allowances at most", highest, widest)
}
