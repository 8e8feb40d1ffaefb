package run

import (
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"rollout/shared/core/schedule"
	"rollout/shared/core/shard"
)

var largeFlag = flag.Int("large", 8_000, "how many shards the large runs of tests have")

// large is a large run under constraints, with workers that answer in any order.
type large struct {
	attributes func(n int) schedule.Attributes
	state      State
	world      Observed
	rules      Rules
	now        time.Time
	rand       *rand.Rand
	pages      map[int]schedule.Page
	slow       map[int]int // in how many steps a shard is done
	steps      int
	highest    int // bytes of a state
	marshal    bool
}

const largeChains = 1000

// layouts are orders of shards in which the chains of a large run lie.
var layouts = []struct {
	name  string
	chain func(n, shards int) int
}{
	{"in turns", func(n, _ int) int { return n % largeChains }},
	{"one after the other", func(n, shards int) int { return n / max(1, shards/largeChains) }},
	{"in blocks", func(n, shards int) int { return n / max(1, shards/(10*largeChains)) % largeChains }},
	{"at random", func(n, _ int) int { return (n*7919 + n/13*104729) % largeChains }},
}

func newLarge(shards, pool int, c schedule.Constraints, chain func(n, shards int) int) *large {
	l := &large{state: New(testRun), rules: Rules{Constraints: c}, now: epoch, rand: rand.New(rand.NewPCG(1, 2)),
		pages: map[int]schedule.Page{}, slow: map[int]int{}}
	l.world = Observed{Shards: shards, Items: uint64(shards), Complete: true, Pool: pool}
	l.attributes = func(n int) schedule.Attributes {
		k := uint32(chain(n, shards))
		return schedule.Attributes{Chain: k/20 + 1, Variant: k % 20, Items: 1}
	}
	return l
}

const pageShards = 256

// step performs one step, with the attributes in pages as coordinate has them.
func (l *large) step(events []Event) {
	l.world.Rows = l.world.Rows[:0]
	last := -1
	for _, r := range ScanRanges(l.state, l.world, l.rules, events) {
		for k := max(last+1, r.Lo/pageShards); k*pageShards < r.Hi; k++ {
			p, ok := l.pages[k]
			if !ok {
				p.First = k * pageShards
				for n := p.First; n < min(p.First+pageShards, l.world.Shards); n++ {
					p.Rows = append(p.Rows, l.attributes(n))
				}
				l.pages[k] = p
			}
			l.world.Rows, last = append(l.world.Rows, p), k
		}
	}
	l.now = l.now.Add(100 * time.Millisecond)
	l.state, _ = Step(l.state, l.world, l.rules, events, l.now)
	l.steps++
	if l.marshal {
		b, err := json.Marshal(l.state)
		if err != nil {
			panic(err)
		}
		l.highest = max(l.highest, len(b))
	}
}

// answers returns events for shards in flight: of about one shard in four, and of
// slow ones later.
func (l *large) answers() (events []Event) {
	for _, c := range l.state.InFlight.Chunks {
		for n := c.Lo; n < c.Hi; n++ {
			if _, known := l.slow[n]; !known && l.rand.IntN(50) == 0 {
				l.slow[n] = 40
			}
			if l.slow[n] > 0 {
				l.slow[n]--
				continue
			}
			switch l.rand.IntN(40) {
			case 0, 1, 2, 3, 4, 5, 6, 7, 8, 9:
				delete(l.slow, n)
				events = append(events, Event{Kind: ShardDone, Shard: n, Counts: shard.Counts{OK: 1}})
			case 10:
				events = append(events, Event{Kind: ShardReleased, Shard: n})
			}
		}
	}
	return events
}

func (l *large) continues() bool {
	for _, e := range l.state.Effects {
		if e.Kind == Continue || e.Kind == RecordPruned {
			return true
		}
	}
	return false
}

// TestStateStaysSmallUnderConstraints checks that the state stays within 16 KiB, and
// that every chain is reached, whatever the order of the chains in the plan.
func TestStateStaysSmallUnderConstraints(t *testing.T) {
	t.Parallel()
	for _, layout := range layouts {
		for _, c := range []schedule.Constraints{
			{Chains: true},
			{Chains: true, MaxInFlightByVariant: 9},
			{MaxInFlightByVariant: 3, MaxInFlight: 50},
		} {
			for _, pool := range []int{1000} {
				t.Run(fmt.Sprintf("%s/%+v/%d", layout.name, c, pool), func(t *testing.T) {
					t.Parallel()
					l := newLarge(*largeFlag, pool, c, layout.chain)
					l.marshal = true
					l.runToEnd(t)
				})
			}
		}
	}
}

func (l *large) runToEnd(t *testing.T) {
	reached, flying := map[chain]bool{}, 0
	idle := 0
	for l.state.Phase != Finalizing {
		var events []Event
		if !l.continues() {
			events = l.answers()
		}
		if l.steps == 50 {
			for v := range uint32(3) {
				events = append(events, Event{Kind: VariantPruned, Variant: 2 + 5*v, Why: "worse"})
			}
		}
		l.step(events)
		for _, e := range l.state.Effects {
			if e.Kind == Send && e.Generation == 0 {
				for n := e.Range.Lo; n < e.Range.Hi; n++ {
					reached[chainOf(l.attributes(n))] = true
				}
			}
		}
		flying += l.state.InFlight.Len()
		if l.highest > 16<<10 {
			t.Fatalf("the state has %d bytes", l.highest)
		}
		if idle++; l.state.InFlight.Len() > 0 {
			idle = 0
		}
		if idle > *largeFlag/100 || l.steps > 4**largeFlag {
			b, _ := json.Marshal(l.state)
			t.Fatalf("after %d steps: %s", l.steps, b)
		}
	}
	if want := largeChains - 3*largeChains/20; len(reached) < want {
		t.Errorf("%d chains were reached, want %d", len(reached), want)
	}
	t.Logf("%d steps, %d bytes at most, %d shards in flight on average", l.steps, l.highest, flying/l.steps)
}

// BenchmarkConstrainedStep measures what coordinate spends on a shard of a run of a
// million shards in a thousand chains, in steps of at least 100 events: to name the
// attributes that it needs, to decide, and to encode the state.
func BenchmarkConstrainedStep(b *testing.B) {
	for _, layout := range layouts {
		for name, c := range map[string]schedule.Constraints{
			"chains":           {Chains: true},
			"chains and a cap": {Chains: true, MaxInFlightByVariant: 12},
		} {
			b.Run(layout.name+"/"+name, func(b *testing.B) {
				l := newLarge(1_000_000, 1000, c, layout.chain)
				l.marshal = true
				done := 0
				for done < 5_000 { // until chains are at different places
					done += l.answer(100)
				}
				b.ResetTimer()
				shards, before := 0, l.steps
				for shards < b.N {
					shards += l.answer(100)
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/1e3/float64(shards), "µs/shard")
				b.ReportMetric(float64(l.highest), "bytes")
				b.ReportMetric(float64(l.steps-before)/float64(shards)*100, "steps/100-shards")
				b.ReportMetric(float64(l.state.InFlight.Len()), "in-flight")
			})
		}
	}
}

// answer has some of the shards in flight done, in steps until nothing is left to
// look at. It returns how many were done.
func (l *large) answer(most int) int {
	var events []Event
	flying := l.state.InFlight.Len()
	for _, c := range l.state.InFlight.Chunks {
		for n := c.Lo; n < c.Hi; n++ {
			if l.rand.IntN(flying) < most {
				events = append(events, Event{Kind: ShardDone, Shard: n, Counts: shard.Counts{OK: 1}})
			}
		}
	}
	for l.step(events); l.continues(); {
		l.step(nil)
	}
	return len(events)
}
