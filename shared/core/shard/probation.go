package shard

import (
	"fmt"
	"maps"
	"math"
	"slices"

	"rollout/shared/core/interval"
)

// Crashes counts the engine crashes while an item was on probation.
type Crashes struct {
	Alone  int `json:"alone,omitempty"`  // the engine processed nothing else
	Shared int `json:"shared,omitempty"` // another item may be the cause
}

// Crash is one crash of an engine during probation.
type Crash struct {
	EngineStart string // names the start of the engine that crashed; "" if unknown
	Alone       bool   // the engine processed nothing but the one item on probation
}

// Probation is the next action for a shard's suspects.
type Probation struct {
	Items []int // to ask with nothing else of the worker in flight; empty without suspects
	// Poison says that the one item must not be asked again: it gets an error row.
	Poison bool
}

const (
	// crashesToPoison is how many crashes make an item poison. Of the crashes that
	// another item may have caused, the first ignoredSharedCrashes do not count.
	crashesToPoison      = 2
	ignoredSharedCrashes = 3
	// vanishedToSuspect is how many holders in a row vanish until all items without
	// a row are suspects.
	vanishedToSuspect = 2

	fewSuspects    = 4   // up to so many are asked one by one: a group saves nothing
	maxGroup       = 32  // items in a group, which bounds the document
	maxRanges      = 256 // ranges of suspects, which bounds the document
	maxEngineStart = 64  // bytes
)

// Poison reports whether the crashes make the item poison.
func (d Crashes) Poison() bool {
	return d.Alone+max(0, d.Shared-ignoredSharedCrashes) >= crashesToPoison
}

// AddSuspects adds items that were in flight when an engine crashed. It is Fenced
// unless h holds the shard.
func (d Doc) AddSuspects(h Holder, items ...int) (Doc, error) {
	if err := d.held(h, "suspicion"); err != nil {
		return d, err
	}
	d.Suspects = d.Suspects.Clone()
	for _, i := range items {
		d.Suspects.Add(i)
	}
	d.Suspects = coarse(d.Suspects)
	return d, nil
}

// ClearSuspects clears the suspects that have a row by now. open lists the items
// without a row.
func (d Doc) ClearSuspects(open []int) Doc {
	if d.Suspects.Len() == 0 {
		return d
	}
	was := d.Suspects
	d.Suspects = interval.Set{}
	for _, i := range open {
		if was.Has(i) {
			d.Suspects.Add(i)
		}
	}
	crashes := map[int]Crashes{}
	for i, n := range d.Crashes {
		if d.Suspects.Has(i) {
			crashes[i] = n
		}
	}
	if d.Crashes = crashes; len(crashes) == 0 {
		d.Crashes = nil
	}
	return d
}

// NextProbation returns the suspects to ask next, at most limit of them at once.
func (d Doc) NextProbation(limit int) Probation {
	if len(d.Crashes) > 0 { // the accused, fewest crashes first, so that an innocent item is soon cleared
		var next int
		least := math.MaxInt
		for _, i := range slices.Sorted(maps.Keys(d.Crashes)) {
			n := d.Crashes[i]
			if n.Poison() {
				return Probation{[]int{i}, true}
			}
			if sum := n.Alone + n.Shared; sum < least {
				next, least = i, sum
			}
		}
		return Probation{Items: []int{next}}
	}
	n := groupSize(d.Suspects.Len(), limit)
	p := Probation{}
	for _, r := range d.Suspects.Ranges() {
		for i := r.Lo; i < r.Hi && len(p.Items) < n; i++ {
			p.Items = append(p.Items, i)
		}
	}
	return p
}

// groupSize returns how many of n suspects to ask at once. Groups of √n find the
// cause with the fewest groups and items asked.
func groupSize(n, limit int) int {
	if n <= fewSuspects {
		return min(n, 1)
	}
	return max(1, min(int(math.Ceil(math.Sqrt(float64(n)))), limit, maxGroup))
}

// StartProbation names the items that h is about to ask on probation: if the
// holder vanishes meanwhile, they may be the cause. It is Fenced unless h holds
// the shard.
func (d Doc) StartProbation(h Holder, items []int) (Doc, error) {
	if err := d.held(h, "probation"); err != nil {
		return d, err
	}
	d.OnProbation = slices.Clone(items)
	return d, nil
}

// RecordCrash charges a crash during the present probation to those of its items
// that got no answer. It counts a crash once, also if several requests report it.
// It is Fenced unless h holds the shard.
func (d Doc) RecordCrash(h Holder, items []int, e Crash) (Doc, error) {
	if err := d.held(h, "crash"); err != nil {
		return d, err
	}
	e.EngineStart = e.EngineStart[:min(len(e.EngineStart), maxEngineStart)]
	if e.EngineStart == "" || e.EngineStart != d.LastCrash {
		d = d.chargeCrash(items, e.Alone && len(d.OnProbation) == 1)
		d.LastCrash = e.EngineStart
	}
	d.OnProbation = nil
	return d, nil
}

// chargeCrash counts a crash against each of the items, and makes them suspects.
func (d Doc) chargeCrash(items []int, alone bool) Doc {
	d.Suspects, d.Crashes = d.Suspects.Clone(), maps.Clone(d.Crashes)
	if d.Crashes == nil {
		d.Crashes = map[int]Crashes{}
	}
	for _, i := range items {
		n := d.Crashes[i]
		if alone {
			n.Alone++
		} else {
			n.Shared++
		}
		d.Crashes[i] = n
		d.Suspects.Add(i)
	}
	return d
}

// chargeVanishedHolder charges a holder that ended without a release to the items
// that were on probation. Without such items, the second one in a row makes all
// items without a row suspects. The holder may have been killed, or its machine
// may have failed, so this counts less than an observed crash, even of one item
// alone.
func (d Doc) chargeVanishedHolder() Doc {
	if len(d.OnProbation) > 0 {
		return d.chargeCrash(d.OnProbation, false)
	}
	if d.VanishedHolders++; d.VanishedHolders == vanishedToSuspect {
		d.Suspects = interval.Of(interval.Range{Lo: 0, Hi: math.MaxInt32})
	}
	return d
}

// clearSuspicion clears everything about suspects: the shard is Done.
func (d Doc) clearSuspicion() Doc {
	d.Suspects, d.Crashes, d.OnProbation, d.LastCrash, d.VanishedHolders = interval.Set{}, nil, nil, "", 0
	return d
}

// coarse fills the smallest holes of a set until it has at most maxRanges ranges.
// The items in them become suspects, too.
func coarse(s interval.Set) interval.Set {
	rs := s.Ranges()
	if len(rs) <= maxRanges {
		return s
	}
	holes := make([]int, 0, len(rs)-1)
	for k := 1; k < len(rs); k++ {
		holes = append(holes, rs[k].Lo-rs[k-1].Hi)
	}
	slices.Sort(holes)
	limit := holes[len(rs)-maxRanges-1] // holes of at most this length are filled
	out := s.Clone()
	for k := 1; k < len(rs); k++ {
		if hole := (interval.Range{Lo: rs[k-1].Hi, Hi: rs[k].Lo}); hole.Len() <= limit {
			out.AddRange(hole)
		}
	}
	return out
}

// String is for logs and tests. Example: "1 alone, 2 shared".
func (d Crashes) String() string { return fmt.Sprintf("%d alone, %d shared", d.Alone, d.Shared) }
