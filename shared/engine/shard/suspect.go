package shard

import (
	"fmt"
	"maps"
	"math"
	"slices"

	"rollout/shared/engine/interval"
)

// Deaths are the times that an engine died while it was asked an item in a
// trial.
type Deaths struct {
	Alone  int `json:"alone,omitempty"`  // it worked on nothing else
	Shared int `json:"shared,omitempty"` // it may have died of something else
}

// Death is one death of an engine, as a trial saw it.
type Death struct {
	Start string // names the start of the engine that ended; "" if unknown
	Alone bool   // the engine worked on nothing but the one item named
}

// Trial is what to do next about a shard's suspects.
type Trial struct {
	Items []int // to be asked with nothing else of the worker in flight; none: there is no suspect
	// Poison says that the one item is not asked any more: it gets an error
	// row.
	Poison bool
}

const (
	// Convicting is how many deaths make an item poison. A death that another
	// item may be to blame for counts once there were Doubted before it.
	Convicting = 2
	Doubted    = 3
	// Vanishings is how many holders in a row may vanish before all items
	// without a row are suspects.
	Vanishings = 2

	fewSuspects = 4  // so many are asked one by one at once: a group would save nothing
	maxGroup    = 32 // accused at once, which bounds the document
	maxRanges   = 256
	maxStart    = 64 // bytes
)

// Poison reports whether the deaths make the item poison.
func (d Deaths) Poison() bool { return d.Alone+max(0, d.Shared-Doubted) >= Convicting }

// Suspect adds items that were in flight when an engine died.
func (d Doc) Suspect(h Holder, items ...int) (Doc, error) {
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

// Clear keeps of the suspects those that are open: an answer clears an item.
// open lists the items without a row.
func (d Doc) Clear(open []int) Doc {
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
	deaths := map[int]Deaths{}
	for i, n := range d.Deaths {
		if d.Suspects.Has(i) {
			deaths[i] = n
		}
	}
	d.Deaths = orNone(deaths)
	return d
}

// Next is the next trial: of at most so many items at once.
func (d Doc) Next(most int) Trial {
	if len(d.Deaths) > 0 { // the accused: who had the fewest deaths is asked first, so that an innocent one is soon cleared
		var next int
		least := math.MaxInt
		for _, i := range slices.Sorted(maps.Keys(d.Deaths)) {
			n := d.Deaths[i]
			if n.Poison() {
				return Trial{[]int{i}, true}
			}
			if sum := n.Alone + n.Shared; sum < least {
				next, least = i, sum
			}
		}
		return Trial{Items: []int{next}}
	}
	n := groupSize(d.Suspects.Len(), most)
	t := Trial{}
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

// Name names the items that are about to be asked in a trial: if the holder
// vanishes meanwhile, they may be why.
func (d Doc) Name(h Holder, items []int) (Doc, error) {
	if err := d.held(h, "trial"); err != nil {
		return d, err
	}
	d.Solo = slices.Clone(items)
	return d, nil
}

// Died counts a death of the engine in the trial that is named, against the
// items of it that got no answer. The same death is counted once.
func (d Doc) Died(h Holder, items []int, e Death) (Doc, error) {
	if err := d.held(h, "death"); err != nil {
		return d, err
	}
	e.Start = e.Start[:min(len(e.Start), maxStart)]
	if e.Start == "" || e.Start != d.LastDeath {
		d = d.blame(items, e.Alone && len(d.Solo) == 1)
		d.LastDeath = e.Start
	}
	d.Solo = nil
	return d, nil
}

func (d Doc) blame(items []int, alone bool) Doc {
	d.Suspects, d.Deaths = d.Suspects.Clone(), maps.Clone(d.Deaths)
	if d.Deaths == nil {
		d.Deaths = map[int]Deaths{}
	}
	for _, i := range items {
		n := d.Deaths[i]
		if alone {
			n.Alone++
		} else {
			n.Shared++
		}
		d.Deaths[i] = n
		d.Suspects.Add(i)
	}
	return d
}

// vanished counts a holder that died without a release: against the items that
// it had named, else against all without a row once it is the second. It may
// have been killed, or its machine may have failed: so even of one item alone
// that is less than a death of the engine that somebody saw.
func (d Doc) vanished() Doc {
	if len(d.Solo) > 0 {
		return d.blame(d.Solo, false)
	}
	if d.Vanished++; d.Vanished == Vanishings {
		d.Suspects = interval.Of(interval.Range{Lo: 0, Hi: math.MaxInt32})
	}
	return d
}

// acquit forgets all suspicion: the shard is over.
func (d Doc) acquit() Doc {
	d.Suspects, d.Deaths, d.Solo, d.LastDeath, d.Vanished = interval.Set{}, nil, nil, "", 0
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

func orNone(m map[int]Deaths) map[int]Deaths {
	if len(m) == 0 {
		return nil
	}
	return m
}

// String is for logs and tests. Example: "1 alone, 2 shared".
func (d Deaths) String() string { return fmt.Sprintf("%d alone, %d shared", d.Alone, d.Shared) }
