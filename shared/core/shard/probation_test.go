package shard

import (
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"rollout/shared/core/interval"
)

// poisonFixture is one shard with an engine that crashes on some of its items. The
// engine may run in the worker, so that both die at once.
type poisonFixture struct {
	t        *rapid.T
	d        Doc
	h        Holder
	poison   map[int]bool
	rows     map[int]bool // true: the row says poison
	crashes  int
	starts   int
	inWorker bool // the engine runs in the worker: both die at once
	alone    bool // the engine is known to process nothing else during probation
}

// crash lets the engine crash while it is asked the items. The holder observes it,
// or vanishes with it.
func (l *poisonFixture) crash(items []int, onProbation bool) {
	l.crashes++
	l.starts++
	var err error
	switch {
	case l.inWorker:
		l.h.Worker += "'"
		l.h.Attempt++
		l.d, err = l.d.Claim(l.h.Worker, l.d.ClaimedAt, HolderVanished)
	case onProbation:
		l.d, err = l.d.RecordCrash(l.h, items, Crash{EngineStart: string(rune('a' + l.starts)), Alone: l.alone})
	default:
		l.d, err = l.d.AddSuspects(l.h, items...)
	}
	if err != nil {
		l.t.Fatal(err)
	}
	l.d = l.d.ClearSuspects(l.open())
}

func (l *poisonFixture) open() []int {
	var out []int
	for i := range l.d.Items {
		if _, ok := l.rows[i]; !ok {
			out = append(out, i)
		}
	}
	return out
}

// ask asks items at once. The good ones are answered, unless they are in flight
// when the engine crashes.
func (l *poisonFixture) ask(items []int, onProbation bool) {
	bad := slices.ContainsFunc(items, func(i int) bool { return l.poison[i] })
	var broken []int
	for _, i := range items {
		if bad && (l.poison[i] || rapid.Bool().Draw(l.t, "in flight")) {
			broken = append(broken, i)
			continue
		}
		l.rows[i] = false
	}
	if bad {
		l.crash(broken, onProbation)
	}
}

// TestOnlyPoisonItemsBecomePoison checks that every other item is answered, and
// bounds the crashes: four for each poison item if the engine is known to process
// nothing else during probation, and seven if not. If the engine takes its worker
// down, five for each after the first two.
func TestOnlyPoisonItemsBecomePoison(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		l := &poisonFixture{t: t, d: New("01JD2ZQ4T5W0M1X9YB7R3K8CVE", 7), h: Holder{"w", 1},
			rows: map[int]bool{}, poison: map[int]bool{},
			inWorker: rapid.Bool().Draw(t, "inside"), alone: rapid.Bool().Draw(t, "alone")}
		l.d, _ = l.d.Claim("w", l.d.ClaimedAt, HolderAlive)
		l.d.Items = rapid.IntRange(1, 256).Draw(t, "items")
		for _, i := range rapid.SliceOfN(rapid.IntRange(0, l.d.Items-1), 0, 3).Draw(t, "poison") {
			l.poison[i] = true
		}
		inFlight := rapid.IntRange(1, 64).Draw(t, "in flight")

		for { // the normal pass
			open := slices.DeleteFunc(l.open(), l.d.Suspects.Has)
			if len(open) == 0 {
				break
			}
			l.ask(open[:min(inFlight, len(open))], false)
		}
		for { // probation
			l.d = l.d.ClearSuspects(l.open())
			next := l.d.NextProbation(inFlight)
			if len(next.Items) == 0 {
				break
			}
			if next.Poison {
				l.rows[next.Items[0]] = true
				continue
			}
			l.d, _ = l.d.StartProbation(l.h, next.Items)
			l.ask(next.Items, true)
		}

		for i := range l.d.Items {
			if poison, ok := l.rows[i]; !ok || poison != l.poison[i] {
				t.Errorf("item %d: has a row %v, poison %v; want poison %v", i, ok, poison, l.poison[i])
			}
		}
		limit := 4 * len(l.poison)
		switch {
		case len(l.poison) == 0:
		case l.inWorker:
			limit = 2 + 5*len(l.poison)
		case !l.alone:
			limit = 7 * len(l.poison)
		}
		if l.crashes > limit {
			t.Errorf("the engine crashed %d times on %v, at most %d times are allowed",
				l.crashes, slices.Sorted(maps.Keys(l.poison)), limit)
		}
	})
}

// TestCoarseKeepsAllSuspects checks that a set with too many holes gets fewer
// ranges and loses no item.
func TestCoarseKeepsAllSuspects(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var s interval.Set
		at := 0
		for range rapid.IntRange(0, 3*maxRanges).Draw(t, "ranges") {
			at += rapid.IntRange(2, 9).Draw(t, "hole")
			s.Add(at)
		}
		got := coarse(s)
		if n := len(got.Ranges()); n > maxRanges {
			t.Errorf("%d ranges", n)
		}
		for _, r := range s.Ranges() {
			if len(got.Missing(r)) > 0 {
				t.Errorf("%v is lost", r)
			}
		}
		if len(s.Ranges()) <= maxRanges && got.Len() != s.Len() {
			t.Errorf("%d of %d ranges became coarser", len(s.Ranges()), maxRanges)
		}
	})
}
