package guidance_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"rollout/shared/core/guidance"
)

// op returns an operation with a reason and evidence.
func op(kind guidance.Kind, text string, entries ...int) guidance.Operation {
	return guidance.Operation{Kind: kind, Entries: entries, Text: text, Reason: "r", Evidence: []string{"t1"}}
}

// used returns guidance of step 0 with entries a, b, c and d that have counts.
func used(t testing.TB) guidance.Guidance {
	return start(t, "Read the ticket with care.\nRules:", "a", "b", "c", "d").Count(map[int]guidance.Tally{
		1: {Hits: 1, Misses: 10}, 2: {Hits: 2, Misses: 20}, 3: {Hits: 4, Misses: 40}, 4: {Hits: 8, Misses: 80}})
}

func apply(g guidance.Guidance, ops ...guidance.Operation) (guidance.Guidance, error) {
	return g.Apply(guidance.Plan{Operations: ops}, guidance.Applying{Limits: usual(),
		Evidence: func(key string) bool { return key == "t1" || key == "t2" }})
}

func TestApply(t *testing.T) {
	t.Parallel()
	a := guidance.Entry{Text: "a", Hits: 1, Misses: 10}
	b := guidance.Entry{Text: "b", Hits: 2, Misses: 20}
	c := guidance.Entry{Text: "c", Hits: 4, Misses: 40}
	d := guidance.Entry{Text: "d", Hits: 8, Misses: 80}
	for name, v := range map[string]struct {
		ops  []guidance.Operation
		want []guidance.Entry
	}{
		"add": {[]guidance.Operation{op(guidance.Add, "e")}, []guidance.Entry{a, b, c, d, {Text: "e", Since: 1}}},
		"adds are in order of their texts": {[]guidance.Operation{op(guidance.Add, "f"), op(guidance.Add, "e")},
			[]guidance.Entry{a, b, c, d, {Text: "e", Since: 1}, {Text: "f", Since: 1}}},
		"rewrite keeps place and counts": {[]guidance.Operation{op(guidance.Rewrite, "B!", 2)},
			[]guidance.Entry{a, {Text: "B!", Hits: 2, Misses: 20, Since: 1}, c, d}},
		"rewrite of the case alone": {[]guidance.Operation{op(guidance.Rewrite, "B", 2)},
			[]guidance.Entry{a, {Text: "B", Hits: 2, Misses: 20, Since: 1}, c, d}},
		"merge takes the first place and adds up": {[]guidance.Operation{op(guidance.Merge, "m", 4, 2, 3)},
			[]guidance.Entry{a, {Text: "m", Hits: 14, Misses: 140, Since: 1}}},
		"drop":        {[]guidance.Operation{op(guidance.Drop, "", 3, 1)}, []guidance.Entry{b, d}},
		"all but one": {[]guidance.Operation{op(guidance.Drop, "", 1, 2, 3)}, []guidance.Entry{d}},
		"normalises": {[]guidance.Operation{op(guidance.Rewrite, " x\n y ", 1)},
			[]guidance.Entry{{Text: "x y", Hits: 1, Misses: 10, Since: 1}, b, c, d}},
		"replaces all": {[]guidance.Operation{op(guidance.Drop, "", 1, 2, 3, 4), op(guidance.Add, "e")},
			[]guidance.Entry{{Text: "e", Since: 1}}},
		"a rewrite that repeats a later entry takes its counts": {[]guidance.Operation{op(guidance.Rewrite, "C", 2)},
			[]guidance.Entry{a, {Text: "C", Hits: 6, Misses: 60, Since: 1}, d}},
		"a rewrite that repeats an earlier entry is joined to it": {[]guidance.Operation{op(guidance.Rewrite, "A", 3)},
			[]guidance.Entry{{Text: "a", Hits: 5, Misses: 50}, b, d}},
		"an addition that is there already is left out": {
			[]guidance.Operation{op(guidance.Add, "D"), op(guidance.Drop, "", 1)}, []guidance.Entry{b, c, d}},
		"numbers are those of the old guidance": {[]guidance.Operation{op(guidance.Drop, "", 1),
			op(guidance.Rewrite, "x", 2), op(guidance.Merge, "y", 3, 4), op(guidance.Add, "z")},
			[]guidance.Entry{{Text: "x", Hits: 2, Misses: 20, Since: 1}, {Text: "y", Hits: 12, Misses: 120, Since: 1},
				{Text: "z", Since: 1}}},
	} {
		before := used(t)
		got, err := apply(before, v.ops...)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		want := guidance.Guidance{Schema: 1, Mission: "photos", Step: 1, From: before.ContentID().String(),
			Scaffold: before.Scaffold, Entries: v.want}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
		if !cmp.Equal(used(t), before) {
			t.Errorf("%s: the old guidance changed: %s", name, before.Encode())
		}
		if again, err := guidance.Decode(got.Encode()); err != nil || !cmp.Equal(got, again) {
			t.Errorf("%s: the new guidance can't be read again: %v", name, err)
		}
	}
}

func TestAPlanWithoutOperationsIsNoStep(t *testing.T) {
	t.Parallel()
	for _, g := range []guidance.Guidance{used(t), start(t, "")} {
		got, err := apply(g)
		if err != nil || got.Step != g.Step || got.ContentID() != g.ContentID() {
			t.Errorf("%s, %v", got.Encode(), err)
		}
	}
}

func TestEachStepNamesTheOneBefore(t *testing.T) {
	t.Parallel()
	g := start(t, "") // guidance may begin without entries
	for i, text := range []string{"a", "b", "c"} {
		next, err := apply(g, op(guidance.Add, text))
		if err != nil {
			t.Fatal(err)
		}
		if next.Step != i+1 || next.From != g.ContentID().String() || next.Entries[i].Since != i+1 {
			t.Fatalf("step %d: %s", i+1, next.Encode())
		}
		g = next
	}
}

func TestRefusedPlansChangeNothing(t *testing.T) {
	t.Parallel()
	evidence := func(o guidance.Operation, keys ...string) guidance.Operation { o.Evidence = keys; return o }
	long := strings.Repeat("x", 601)
	for name, c := range map[string]struct {
		ops  []guidance.Operation
		want guidance.Refusal
	}{
		"missing entry":       {[]guidance.Operation{op(guidance.Rewrite, "x", 5)}, guidance.NoSuchEntry},
		"one missing of two":  {[]guidance.Operation{op(guidance.Merge, "x", 1, 5)}, guidance.NoSuchEntry},
		"entry 0":             {[]guidance.Operation{op(guidance.Drop, "", 0)}, guidance.NoSuchEntry},
		"drops all":           {[]guidance.Operation{op(guidance.Drop, "", 1, 2, 3, 4)}, guidance.Empties},
		"one bad beside good": {[]guidance.Operation{op(guidance.Add, "e"), op(guidance.Drop, "", 5)}, guidance.NoSuchEntry},
		"two change one": {[]guidance.Operation{op(guidance.Drop, "", 1), op(guidance.Merge, "x", 2, 1)},
			guidance.Conflict},
		"same text":            {[]guidance.Operation{op(guidance.Rewrite, " a ", 1)}, guidance.NoChange},
		"adds what is there":   {[]guidance.Operation{op(guidance.Add, "A")}, guidance.NoChange},
		"too long":             {[]guidance.Operation{op(guidance.Add, long)}, guidance.EntryTooLong},
		"unknown kind":         {[]guidance.Operation{op("append", "x")}, guidance.WrongForm},
		"invalid UTF-8":        {[]guidance.Operation{op(guidance.Add, "\xff")}, guidance.ControlCharacters},
		"unknown ticket":       {[]guidance.Operation{evidence(op(guidance.Add, "e"), "t1", "t3")}, guidance.UnknownEvidence},
		"ticket of other case": {[]guidance.Operation{evidence(op(guidance.Add, "e"), "T1")}, guidance.UnknownEvidence},
		"no ticket":            {[]guidance.Operation{evidence(op(guidance.Add, "e"))}, guidance.NoEvidence},
		"repeats the scaffold": {[]guidance.Operation{op(guidance.Add, "READ the ticket, with care!")},
			guidance.TouchesScaffold},
		"bends the scaffold": {[]guidance.Operation{op(guidance.Rewrite,
			"Never read the ticket with\ncare again.", 1)}, guidance.TouchesScaffold},
		"too many": {slices.Repeat([]guidance.Operation{op(guidance.Add, "e")}, 9), guidance.TooManyOperations},
	} {
		before := used(t)
		got, err := apply(before, c.ops...)
		if r := refusalOf(t, err); r != c.want {
			t.Errorf("%s: %v, want %s", name, err, c.want)
		}
		if string(got.Encode()) != string(before.Encode()) || !cmp.Equal(before, used(t)) {
			t.Errorf("%s: the guidance changed: %s", name, got.Encode())
		}
	}
}

// Words of the scaffold may be used; only a whole line of five words or more is its own.
func TestShortLinesOfTheScaffoldMayBeRepeated(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"Rules: be brief.", "Read the ticket with more care.", "With care read the ticket."} {
		if _, err := apply(used(t), op(guidance.Add, text)); err != nil {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func TestLimitsHoldAfterThePlan(t *testing.T) {
	t.Parallel()
	// "1. a\n2. b\n3. c\n4. d" has 19 bytes.
	limits := guidance.Limits{Entries: 4, EntryBytes: 10, TotalTokens: 7, Operations: 3}
	for name, c := range map[string]struct {
		ops  []guidance.Operation
		want guidance.Refusal
	}{
		"one more entry":    {[]guidance.Operation{op(guidance.Add, "e")}, guidance.TooManyEntries},
		"one for another":   {[]guidance.Operation{op(guidance.Add, "e"), op(guidance.Drop, "", 1)}, ""},
		"longest text":      {[]guidance.Operation{op(guidance.Rewrite, "0123456789", 1)}, ""},
		"too long in bytes": {[]guidance.Operation{op(guidance.Rewrite, "öööööö", 1)}, guidance.EntryTooLong},
		"together too long": {[]guidance.Operation{op(guidance.Rewrite, "012345", 1),
			op(guidance.Rewrite, "678901", 2)}, guidance.TooManyTokens},
		"room is made in the end": {[]guidance.Operation{op(guidance.Rewrite, "012345", 1),
			op(guidance.Rewrite, "678901", 2), op(guidance.Drop, "", 3)}, ""},
		"four operations": {[]guidance.Operation{op(guidance.Drop, "", 1), op(guidance.Drop, "", 2),
			op(guidance.Drop, "", 3), op(guidance.Rewrite, "x", 4)}, guidance.TooManyOperations},
	} {
		_, err := used(t).Apply(guidance.Plan{Operations: c.ops}, guidance.Applying{Limits: limits})
		if r := refusalOf(t, err); r != c.want {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}
