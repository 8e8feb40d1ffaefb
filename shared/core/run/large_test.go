package run

import (
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"syscall"
	"testing"
	"time"

	"rollout/shared/core/schedule"
	"rollout/shared/core/shard"
)

var (
	largeFlag = flag.Int("large", 5_000, "how many shards the large runs of tests have")
	benchFlag = flag.Int("bench-shards", 1_000_000, "how many shards the runs of benchmarks have")
)

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

// shapes are plans of large runs: of which chain and variant shard n of shards is.
var shapes = []struct {
	name string
	of   func(n, shards int) schedule.Attributes
}{
	{"chains in turns", func(n, _ int) schedule.Attributes { return chainOfMany(n) }},
	{"chains one after the other", func(n, shards int) schedule.Attributes {
		return chainOfMany(n / max(1, shards/largeChains))
	}},
	{"chains in blocks", func(n, shards int) schedule.Attributes {
		return chainOfMany(n / max(1, shards/(10*largeChains)))
	}},
	{"chains at random", func(n, _ int) schedule.Attributes { return chainOfMany(n*7919 + n/13*104729) }},
	{"replications of tasks of variants", func(n, _ int) schedule.Attributes {
		return schedule.Attributes{Chain: uint32(n/100) + 1, Variant: uint32(n / 5 % 20)}
	}},
	{"variants one after the other", func(n, shards int) schedule.Attributes {
		return schedule.Attributes{Chain: uint32(n%50) + 1, Variant: uint32(20 * n / shards)}
	}},
	{"many short chains after a long one", func(n, shards int) schedule.Attributes {
		if n < shards/20 {
			return schedule.Attributes{Chain: 1}
		}
		return schedule.Attributes{Chain: uint32(n/2) + 2, Variant: uint32(n / 2 % 20)}
	}},
	{"halves of chains far from each other", func(n, shards int) schedule.Attributes {
		k := n % max(1, shards/2)
		return schedule.Attributes{Chain: uint32(k/2) + 1, Variant: uint32(k / 2 % 20)}
	}},
	{"all of one variant", func(n, shards int) schedule.Attributes {
		return schedule.Attributes{Chain: uint32(n/max(1, shards/(10*largeChains))%largeChains) + 1}
	}},
	{"variants without chains in blocks", func(n, _ int) schedule.Attributes {
		return schedule.Attributes{Variant: uint32(n / 20 % 250)}
	}},
}

const largeChains = 1000

// chainOfMany returns the attributes of chain k of largeChains chains in 20 variants.
func chainOfMany(k int) schedule.Attributes {
	k %= largeChains
	return schedule.Attributes{Chain: uint32(k/20) + 1, Variant: uint32(k % 20)}
}

func newLarge(shards int, c schedule.Constraints, of func(n, shards int) schedule.Attributes) *large {
	l := &large{state: New(testRun), rules: Rules{Constraints: c}, now: epoch, rand: rand.New(rand.NewPCG(1, 2)),
		pages: map[int]schedule.Page{}, slow: map[int]int{}, marshal: true}
	l.world = Observed{Shards: shards, Items: uint64(shards), Complete: true, Pool: 1000}
	l.attributes = func(n int) schedule.Attributes {
		a := of(n, shards)
		a.Items = 1
		return a
	}
	return l
}

// step performs one step, with the attributes in pages as coordinate has them.
func (l *large) step(events []Event) {
	l.world.Rows = l.world.Rows[:0]
	for {
		missing := ScanPages(l.state, l.world, l.rules, events)
		if len(missing) == 0 {
			break
		}
		var fresh []schedule.Page
		for _, k := range missing {
			p, ok := l.pages[k]
			if !ok {
				p.First = k * schedule.PageShards
				for n := p.First; n < min(p.First+schedule.PageShards, l.world.Shards); n++ {
					p.Rows = append(p.Rows, l.attributes(n))
				}
				l.pages[k], fresh = p, append(fresh, p)
			}
			l.world.Rows = append(l.world.Rows, p)
		}
		slices.SortFunc(l.world.Rows, func(a, b schedule.Page) int { return a.First - b.First })
		l.world.Outline = l.world.Outline.With(fresh, 1000)
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
// that every chain is reached, whatever the order of the shards in the plan.
func TestStateStaysSmallUnderConstraints(t *testing.T) {
	t.Parallel()
	for _, shape := range shapes {
		for _, c := range []schedule.Constraints{
			{Chains: true},
			{Chains: true, MaxInFlightByVariant: 9},
			{MaxInFlightByVariant: 3, MaxInFlight: 50},
		} {
			t.Run(fmt.Sprintf("%s/%+v", shape.name, c), func(t *testing.T) {
				t.Parallel()
				newLarge(*largeFlag, c, shape.of).runToEnd(t)
			})
		}
	}
}

// runToEnd prunes some variants on the way.
func (l *large) runToEnd(t *testing.T) {
	reached, want := map[chain]bool{}, map[chain]bool{}
	pruned := []uint32{2, 7, 12}
	for n := range l.world.Shards {
		if k := chainOf(l.attributes(n)); !slices.Contains(pruned, k.variant) {
			want[k] = true
		}
	}
	flying, idle := 0, 0
	for l.state.Phase != Finalizing {
		var events []Event
		if !l.continues() {
			events = l.answers()
		}
		if l.steps == 50 {
			for _, v := range pruned {
				events = append(events, Event{Kind: VariantPruned, Variant: v, Why: "worse"})
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
		if idle > *largeFlag/100 || l.steps > 8**largeFlag {
			b, _ := json.Marshal(l.state)
			t.Fatalf("after %d steps: %s", l.steps, b)
		}
	}
	for k := range want {
		if !reached[k] {
			t.Fatalf("%+v was not reached, as one of %d of %d", k, len(want)-len(reached), len(want))
		}
	}
	t.Logf("%d steps, %d bytes at most, %d shards in flight on average", l.steps, l.highest, flying/l.steps)
}

// BenchmarkConstrainedStep measures what coordinate spends on a shard of a run of a
// million shards, in steps of at least 100 events where the constraints let so many
// be in flight: to name the attributes that it needs, to decide, and to encode the
// state.
func BenchmarkConstrainedStep(b *testing.B) {
	for _, shape := range shapes {
		for _, c := range []struct {
			name string
			schedule.Constraints
		}{
			{"chains", schedule.Constraints{Chains: true}},
			{"a cap of 12", schedule.Constraints{Chains: true, MaxInFlightByVariant: 12}},
			{"a cap of 1", schedule.Constraints{Chains: true, MaxInFlightByVariant: 1}},
		} {
			b.Run(shape.name+"/"+c.name, func(b *testing.B) {
				l := newLarge(*benchFlag, c.Constraints, shape.of)
				done := 0
				for done < min(5_000, *benchFlag/10) { // until chains are at different places
					done += l.answer(100)
				}
				b.ResetTimer()
				shards, before, began := 0, l.steps, cpuTime(b)
				for shards < b.N && l.state.Phase != Finalizing {
					shards += l.answer(100)
				}
				b.ReportMetric(float64((cpuTime(b)-began).Nanoseconds())/1e3/float64(shards), "cpu-µs/shard")
				b.ReportMetric(float64(l.highest), "bytes")
				b.ReportMetric(float64(l.steps-before)/float64(shards)*100, "steps/100-shards")
				b.ReportMetric(float64(l.state.InFlight.Len()), "in-flight")
			})
		}
	}
}

// cpuTime returns the CPU time of this process so far.
func cpuTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
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
