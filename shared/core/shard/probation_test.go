package shard

import (
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"rollout/shared/core/interval"
)

// lab is one shard in front of an engine that dies of some of its items, and
// takes a holder along now and then.
type lab struct {
	t      *rapid.T
	d      Doc
	h      Holder
	poison map[int]bool
	rows   map[int]bool // true: the row says poison
	deaths int
	starts int
	inside bool // the engine lives in the worker: both die at once
	alone  bool // it is said to have worked on nothing else
}

// dies lets the engine die while it is asked the items; the holder sees it, or
// vanishes with it.
func (l *lab) dies(items []int, trial bool) {
	l.deaths++
	l.starts++
	var err error
	switch {
	case l.inside:
		l.h.Worker += "'"
		l.h.Attempt++
		l.d, err = l.d.Claim(l.h.Worker, l.d.ClaimedAt, HolderVanished)
	case trial:
		l.d, err = l.d.RecordCrash(l.h, items, Crash{EngineStart: string(rune('a' + l.starts)), Alone: l.alone})
	default:
		l.d, err = l.d.AddSuspects(l.h, items...)
	}
	if err != nil {
		l.t.Fatal(err)
	}
	l.d = l.d.ClearSuspects(l.open())
}

func (l *lab) open() []int {
	var out []int
	for i := range l.d.Items {
		if _, ok := l.rows[i]; !ok {
			out = append(out, i)
		}
	}
	return out
}

// ask asks items at once: the good ones are answered, unless they come to be
// in flight when the engine dies.
func (l *lab) ask(items []int, trial bool) {
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
		l.dies(broken, trial)
	}
}

// The poisonous items end as poison, and they alone; every other item is
// answered; and the engine dies no more than four times for each poison if it
// works on nothing else in trials, six times if that is never sure. If it takes
// its worker along, it dies five times for each, once two vanished.
func TestPoisonAloneIsFound(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		l := &lab{t: t, d: New("01JD2ZQ4T5W0M1X9YB7R3K8CVE", 7), h: Holder{"w", 1}, rows: map[int]bool{}, poison: map[int]bool{},
			inside: rapid.Bool().Draw(t, "inside"), alone: rapid.Bool().Draw(t, "alone")}
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
		for { // the trials
			l.d = l.d.ClearSuspects(l.open())
			trial := l.d.NextProbation(inFlight)
			if len(trial.Items) == 0 {
				break
			}
			if trial.Poison {
				l.rows[trial.Items[0]] = true
				continue
			}
			l.d, _ = l.d.StartProbation(l.h, trial.Items)
			l.ask(trial.Items, true)
		}

		for i := range l.d.Items {
			if said, ok := l.rows[i]; !ok || said != l.poison[i] {
				t.Errorf("item %d: row %v, poison %v; want poison %v", i, ok, said, l.poison[i])
			}
		}
		most := 4 * len(l.poison)
		switch {
		case len(l.poison) == 0:
		case l.inside:
			most = 2 + 5*len(l.poison)
		case !l.alone:
			most = 7 * len(l.poison)
		}
		if l.deaths > most {
			t.Errorf("the engine died %d times of %v, more than %d", l.deaths, slices.Sorted(maps.Keys(l.poison)), most)
		}
	})
}

// A set with too many holes becomes coarser, and loses nobody.
func TestCoarseSetsLoseNobody(t *testing.T) {
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
