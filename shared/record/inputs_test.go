package record

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"rollout/shared/core/identity"
	"rollout/shared/fault"
)

// someInputs returns n inputs whose names have the length.
func someInputs(n, name int) (out []Input) {
	for i := range n {
		out = append(out, Input{Key: fmt.Sprintf("work/upload/%06d.jsonl", i), Version: "v", Size: int64(i + 1),
			Name: strings.Repeat("n", name)})
	}
	return out
}

func TestFewInputsStayInTheManifest(t *testing.T) {
	t.Parallel()
	l := DefaultInputLimits()
	for name, c := range map[string]struct {
		inputs []Input
		parts  int
	}{
		"none":                  {nil, 0},
		"one":                   {someInputs(1, 9), 0},
		"as many as fit":        {someInputs(l.Inline, 9), 0},
		"one more":              {someInputs(l.Inline+1, 9), 1},
		"few with long names":   {someInputs(20, 4096), 1},
		"exactly one part":      {someInputs(l.Part, 9), 1},
		"one more than a part":  {someInputs(l.Part+1, 9), 2},
		"longest names, a part": {someInputs(31, 4096), 1},
		"longest names, more":   {someInputs(32, 4096), 2},
	} {
		m, parts := SplitInputs(Manifest{Schema: Schema, Run: runID, Inputs: c.inputs}, l)
		if len(parts) != c.parts || m.InputCount() != len(c.inputs) || (m.List != nil) != (c.parts > 0) {
			t.Errorf("%s: %d parts, want %d; %d inputs", name, len(parts), c.parts, m.InputCount())
		}
		if want := map[bool]int{false: Schema, true: SchemaParts}[c.parts > 0]; m.Schema != want {
			t.Errorf("%s: schema %d, want %d", name, m.Schema, want)
		}
		if size := len(Encode(m)); size > 128<<10 {
			t.Errorf("%s: a manifest of %d bytes", name, size)
		}
	}
}

func TestPartsHaveAllInputsInOrderWithinTheirBounds(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		l := InputLimits{Inline: rapid.IntRange(0, 3).Draw(t, "inline"), InlineBytes: 400, Head: 2, HeadBytes: 400,
			Part: rapid.IntRange(1, 5).Draw(t, "part"), PartBytes: rapid.IntRange(1, 900).Draw(t, "bytes")}
		var inputs []Input
		for i := range rapid.IntRange(0, 30).Draw(t, "inputs") {
			packed := rapid.SampledFrom([]string{"", "", "gzip"}).Draw(t, "packed")
			inputs = append(inputs, Input{Key: fmt.Sprint(i), Size: int64(i), Packed: packed,
				Name: strings.Repeat("x", rapid.IntRange(0, 500).Draw(t, "name"))})
		}
		whole := Manifest{Schema: Schema, Run: runID, Inputs: inputs}
		m, parts := SplitInputs(whole, l)
		if m.InputCount() != len(inputs) || m.AnyPacked() != whole.AnyPacked() {
			t.Fatalf("%d inputs, packed %v; want %d, %v", m.InputCount(), m.AnyPacked(), len(inputs), whole.AnyPacked())
		}
		if m.List == nil {
			if len(inputs) > l.Inline || len(parts) > 0 {
				t.Fatalf("%d inputs are not in parts", len(inputs))
			}
			return
		}
		var joined []Input
		for k, p := range parts {
			size := len(Encode(p.Inputs))
			if n := len(p.Inputs); n > l.Part || n > 1 && size > l.PartBytes+2 || m.List.Check(k, p) != nil {
				t.Fatalf("part %d has %d inputs in %d bytes", k, n, size)
			}
			if got := identity.Content(Encode(p)).String(); m.List.Parts[k].Content != got {
				t.Fatalf("part %d is named %s", k, m.List.Parts[k].Content)
			}
			joined = append(joined, p.Inputs...)
		}
		if !slices.Equal(joined, inputs) {
			t.Fatalf("the parts have %v, want %v", joined, inputs)
		}
		for i := range inputs {
			if k, first := m.List.PartOf(i); parts[k].Inputs[i-first] != inputs[i] {
				t.Fatalf("input %d is in part %d from %d on", i, k, first)
			}
		}
		if again, none := SplitInputs(m, l); again.List != m.List || none != nil {
			t.Fatal("the list of a child is divided again")
		}
	})
}

func TestRunsOfTooManyInputsAreRefused(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		inputs []Input
		want   string
	}{
		"as many as allowed":  {make([]Input, MaxInputs), ""},
		"one more":            {make([]Input, MaxInputs+1), "100001 files are too many for one run: at most 100000"},
		"names are too long":  {someInputs(35_000, 4096), "their names make a list of 1130 parts"},
		"long names, but few": {someInputs(10_000, 4096), ""},
	} {
		err := CheckInputs(c.inputs)
		if (err == nil) != (c.want == "") || err != nil && !fault.Is(err, fault.Invalid) ||
			err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

// Parts without a range, as of empty files, are passed over.
func TestRangesOfAListAreFoundInTheirParts(t *testing.T) {
	t.Parallel()
	parts := []SourcePart{
		{Input: 0, Ranges: []Ranges{{Size: 1, Count: 1}, {Size: RangeSize + 1, Count: 2}}},
		{Input: 2, Ranges: []Ranges{{}, {}}},
		{Input: 4, Ranges: []Ranges{{}, {Size: 7, Count: 1}}},
		{Input: 6, Ranges: []Ranges{{}}},
	}
	p := Plan{List: &SourceList{Count: 7}, Appended: &Appended{Ranges: Ranges{Size: 3, Count: 1}, Input: 7, First: 4}}
	for _, part := range parts {
		p.List.Parts = append(p.List.Parts, SourceListPart{part.Input, p.Total})
		p.Total += part.Count()
	}
	p.List.Ranges, p.Total = p.Total, p.Total+1
	want := []Place{{0, Ranges{Size: 1, Count: 1}, 0, 1}, {1, parts[0].Ranges[1], 0, RangeSize},
		{1, parts[0].Ranges[1], RangeSize, RangeSize + 1}, {5, Ranges{Size: 7, Count: 1}, 0, 7}}
	for k, w := range want {
		part, first, ok := p.PartOfRange(k)
		if at, found := parts[part].Locate(k - first); !ok || !found || at != w || !p.Has(k) {
			t.Errorf("range %d: %+v in part %d, want %+v", k, at, part, w)
		}
	}
	if at, ok := p.Locate(4); !ok || at.Input != 7 || !p.Has(4) || p.Has(5) || p.Has(-1) {
		t.Errorf("what is appended: %+v, %v", at, ok)
	}
	for i := range p.Inputs() {
		if k, ok := p.PartOfInput(i); !ok || i < parts[k].Input || i >= parts[k].Input+len(parts[k].Ranges) {
			t.Errorf("input %d is in part %d", i, k)
		}
		if _, ok := p.Source(runID, i); ok {
			t.Errorf("the plan itself has input %d", i)
		}
	}
	if p.Sources() != 8 || p.InputRanges() != 4 {
		t.Errorf("%d sources, %d ranges of inputs", p.Sources(), p.InputRanges())
	}
	for k, part := range parts {
		if err := p.List.Check(k, part); err != nil {
			t.Error(err)
		}
	}
	if err := p.List.Check(0, parts[1]); !fault.Is(err, fault.Corrupt) {
		t.Errorf("a part of other inputs: %v", err)
	}
}
