package record

import (
	"fmt"
	"sort"

	"rollout/shared/core/identity"
	"rollout/shared/fault"
)

// SourceList says where the sources of a plan of many inputs are. Each part of the manifest's
// list has a part here with the same inputs.
type SourceList struct {
	Count  int              `json:"count"`  // sources
	Ranges int              `json:"ranges"` // of all of them
	Parts  []SourceListPart `json:"parts"`
}

// SourceListPart says where a part begins.
type SourceListPart struct {
	Input int `json:"input"` // its first input
	Range int `json:"range"` // its first range among all
}

// SourcePart is the object at SourcePartKey. Plan writes it create-only.
type SourcePart struct {
	Schema int      `json:"schema"`
	Input  int      `json:"input"` // the first one
	Ranges []Ranges `json:"ranges"`
}

// SourcePartKey returns the key of a SourcePart of the run whose plan objects these are.
func SourcePartKey(r identity.RunID, part int) string {
	return fmt.Sprintf("%s%s/plan/sources-%06d.json", WorkPrefix, r, part)
}

// Count returns the number of ranges of the part.
func (p SourcePart) Count() (n int) {
	for _, src := range p.Ranges {
		n += src.Count
	}
	return n
}

// Check returns Corrupt unless the part has the sources that its place in the list says.
func (l SourceList) Check(part int, p SourcePart) error {
	first, behind := l.Parts[part].Input, l.Count
	if part+1 < len(l.Parts) {
		behind = l.Parts[part+1].Input
	}
	if p.Input != first || len(p.Ranges) != behind-first {
		return fault.New(fault.Corrupt, "part %d of the sources of a plan has %d from %d on, not %d from %d on",
			part, len(p.Ranges), p.Input, behind-first, first)
	}
	return nil
}

// Sources returns the number of objects whose ranges the plan has: the inputs of
// the run, and what was appended.
func (p Plan) Sources() int {
	if p.Appended != nil {
		return p.Appended.Input + 1
	}
	return p.Inputs()
}

// Inputs returns the number of the run's inputs, as far as the plan has them.
func (p Plan) Inputs() int {
	if p.List != nil {
		return p.List.Count
	}
	return len(p.Ranges)
}

// InputRanges returns the number of ranges of the run's inputs.
func (p Plan) InputRanges() (n int) {
	if p.List != nil {
		return p.List.Ranges
	}
	for _, src := range p.Ranges {
		n += src.Count
	}
	return n
}

// PartOfInput returns the part of the List that has an input; ok is false if no part has it,
// as in a plan without a List.
func (p Plan) PartOfInput(input int) (part int, ok bool) {
	if p.List == nil || input < 0 || input >= p.List.Count {
		return 0, false
	}
	return sort.Search(len(p.List.Parts), func(k int) bool { return p.List.Parts[k].Input > input }) - 1, true
}

// PartOfRange is PartOfInput for a range. Its first one is the one returned.
func (p Plan) PartOfRange(k int) (part, first int, ok bool) {
	if p.List == nil || k < 0 || k >= p.List.Ranges {
		return 0, 0, false
	}
	// Parts without a range begin with the range of the one behind them.
	part = sort.Search(len(p.List.Parts), func(i int) bool { return p.List.Parts[i].Range > k }) - 1
	return part, p.List.Parts[part].Range, true
}

// Source returns the object of an input. An appended one is immutable, and has
// neither version nor role here unless it is the last. ok is false if the plan has no such
// input, or has it in a part.
func (p Plan) Source(run identity.RunID, input int) (src Ranges, ok bool) {
	_, inPart := p.PartOfInput(input)
	switch {
	case input < 0 || input >= p.Sources() || inPart:
		return Ranges{}, false
	case input < len(p.Ranges):
		return p.Ranges[input], true
	case input == p.Appended.Input:
		return p.Appended.Ranges, true
	}
	return Ranges{Key: AppendedKey(p.SourceOwner(run, input), input)}, true
}

// Place is a part of a planned object.
type Place struct {
	Input         int
	Source        Ranges
	Offset, Limit int64 // of its bytes: [Offset, Limit)
}

// Locate returns the place of range k. Ranges are numbered over all inputs, and then over what
// was appended. ok is false if range k does not exist, belongs to an object that was appended
// before the last one, or is in a part of the List.
func (p Plan) Locate(k int) (at Place, ok bool) {
	if k < 0 {
		return Place{}, false
	}
	if a := p.Appended; a != nil && k >= a.First {
		return placeIn(a.Ranges, a.Input, k-a.First)
	}
	return locate(p.Ranges, 0, k)
}

// Has reports whether the plan can locate range k: itself, or in a part of the List.
func (p Plan) Has(k int) bool {
	_, ok := p.Locate(k)
	_, _, inPart := p.PartOfRange(k)
	return ok || inPart
}

// Locate returns the place of range k of the part, counted from its first.
func (p SourcePart) Locate(k int) (at Place, ok bool) { return locate(p.Ranges, p.Input, k) }

// locate returns the place of range k of sources, of which the first has that number.
func locate(sources []Ranges, first, k int) (Place, bool) {
	for i, src := range sources {
		if k < src.Count {
			return placeIn(src, first+i, k)
		}
		k -= src.Count
	}
	return Place{}, false
}

func placeIn(src Ranges, input, k int) (Place, bool) {
	offset := int64(k) * RangeSize
	return Place{Input: input, Source: src, Offset: offset, Limit: min(offset+RangeSize, src.Size)}, k < src.Count
}
