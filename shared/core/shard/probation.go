package shard

import (
	"fmt"
	"maps"
	"math"
	"slices"

	"rollout/shared/core/interval"
)

// Crashes are the times that an engine died while it was asked an item in a
// trial.
type Crashes struct {
	Alone  int `json:"alone,omitempty"`  // it worked on nothing else
	Shared int `json:"shared,omitempty"` // it may have died of something else
}

// Crash is one death of an engine, as a trial saw it.
type Crash struct {
	EngineStart string // names the start of the engine that ended; "" if unknown
	Alone       bool   // the engine worked on nothing but the one item named
}

// Probation is what to do next about a shard's suspects.
type Probation struct {
	Items []int // to be asked with nothing else of the worker in flight; none: there is no suspect
	// Poison says that the one item is not asked any more: it gets an error
	// row.
	Poison bool
}

const (
	// CrashesToPoison is how many deaths make an item poison. A death that another
	// item may be to blame for counts once there were Doubted before it.
	CrashesToPoison      = 2
	IgnoredSharedCrashes = 3
	// VanishedToSuspect is how many holders in a row may vanish before all items
	// without a row are suspects.
	VanishedToSuspect = 2

	fewSuspects    = 4  // so many are asked one by one at once: a group would save nothing
	maxGroup       = 32 // accused at once, which bounds the document
	maxRanges      = 256
	maxEngineStart = 64 // bytes
)

// Poison reports whether the deaths make the item poison.
func (d Crashes) Poison() bool {
	return d.Alone+max(0, d.Shared-IgnoredSharedCrashes) >= CrashesToPoison
}

// AddSuspects adds items that were in flight when an engine died.
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

// ClearSuspects keeps of the suspects those that are open: an answer clears an item.
// open lists the items without a row.
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
	deaths := map[int]Crashes{}
	for i, n := range d.Crashes {
		if d.Suspects.Has(i) {
			deaths[i] = n
		}
	}
	d.Crashes = orNone(deaths)
	return d
}

// NextProbation is the next trial: of at most so many items at once.
func (d Doc) NextProbation(most int) Probation {
	if len(d.Crashes) > 0 { // the accused: who had the fewest deaths is asked first, so that an innocent one is soon cleared
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
	n := groupSize(d.Suspects.Len(), most)
	t := Probation{}
	for _, r := range d.Suspects.Ranges() {
		for i := r.Lo; i < r.Hi && len(t.Items) < n; i++ {
			t.Items = append(t.Items, i)
		}
	}
	return t
}

// groupSize is how many of n suspects are asked at once. With groups as large
// as there are many, the fewest trials find the culprit.
func groupSize(n, most int) int {
	if n <= fewSuspects {
		return min(n, 1)
	}
	return max(1, min(int(math.Ceil(math.Sqrt(float64(n)))), most, maxGroup))
}

// StartProbation names the items that are about to be asked in a trial: if the holder
// vanishes meanwhile, they may be why.
func (d Doc) StartProbation(h Holder, items []int) (Doc, error) {
	if err := d.held(h, "trial"); err != nil {
		return d, err
	}
	d.OnProbation = slices.Clone(items)
	return d, nil
}

// RecordCrash counts a death of the engine in the trial that is named, against the
// items of it that got no answer. The same death is counted once.
func (d Doc) RecordCrash(h Holder, items []int, e Crash) (Doc, error) {
	if err := d.held(h, "death"); err != nil {
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

// chargeVanishedHolder counts a holder that died without a release: against the items that
// it had named, else against all without a row once it is the second. It may
// have been killed, or its machine may have failed: so even of one item alone
// that is less than a death of the engine that somebody saw.
func (d Doc) chargeVanishedHolder() Doc {
	if len(d.OnProbation) > 0 {
		return d.chargeCrash(d.OnProbation, false)
	}
	if d.VanishedHolders++; d.VanishedHolders == VanishedToSuspect {
		d.Suspects = interval.Of(interval.Range{Lo: 0, Hi: math.MaxInt32})
	}
	return d
}

// clearSuspicion forgets all suspicion: the shard is over.
func (d Doc) clearSuspicion() Doc {
	d.Suspects, d.Crashes, d.OnProbation, d.LastCrash, d.VanishedHolders = interval.Set{}, nil, nil, "", 0
	return d
}

// coarse lets a set with very many holes have fewer: what is between becomes
// suspect, too.
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
	limit := holes[len(rs)-maxRanges-1] // so many of the smallest are filled
	out := s.Clone()
	for k := 1; k < len(rs); k++ {
		if hole := (interval.Range{Lo: rs[k-1].Hi, Hi: rs[k].Lo}); hole.Len() <= limit {
			out.AddRange(hole)
		}
	}
	return out
}

func orNone(m map[int]Crashes) map[int]Crashes {
	if len(m) == 0 {
		return nil
	}
	return m
}

// String is for logs and tests. Example: "1 alone, 2 shared".
func (d Crashes) String() string { return fmt.Sprintf("%d alone, %d shared", d.Alone, d.Shared) }
