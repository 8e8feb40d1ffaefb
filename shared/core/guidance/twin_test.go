package guidance_test

import (
	"slices"
	"sort"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"rollout/shared/core/guidance"
)

// twinOf applies a plan the long way, entry by entry. It returns the new entries and
// every reason to refuse the plan.
func twinOf(g guidance.Guidance, ops []guidance.Operation, lim guidance.Limits, known map[string]bool) (
	out []guidance.Entry, refusals []guidance.Refusal) {
	refuse := func(r guidance.Refusal, when bool) {
		if when {
			refusals = append(refusals, r)
		}
	}
	refuse(guidance.TooManyOperations, len(ops) > lim.Operations)
	changes := make(map[int]int)
	for _, op := range ops {
		for _, n := range op.Entries {
			changes[n]++
			refuse(guidance.NoSuchEntry, n > len(g.Entries))
			refuse(guidance.Conflict, changes[n] > 1)
		}
		for _, key := range op.Evidence {
			refuse(guidance.UnknownEvidence, !known[key])
		}
		refuse(guidance.TouchesScaffold, strings.Contains(" "+strings.ToLower(op.Text)+" ", " one two three four five "))
	}
	if len(refusals) > 0 {
		return nil, refusals
	}
	for i, e := range g.Entries {
		keep := true
		for _, op := range ops {
			if !slices.Contains(op.Entries, i+1) {
				continue
			}
			if op.Kind == guidance.Drop || i+1 != slices.Min(op.Entries) {
				keep = false
				continue
			}
			e = guidance.Entry{Text: op.Text, Since: g.Step + 1}
			for _, n := range op.Entries {
				e.Hits, e.Misses = e.Hits+g.Entries[n-1].Hits, e.Misses+g.Entries[n-1].Misses
				e.LastUsed = max(e.LastUsed, g.Entries[n-1].LastUsed)
			}
		}
		if keep {
			out = append(out, e)
		}
	}
	var added []string
	for _, op := range ops {
		if op.Kind == guidance.Add {
			added = append(added, op.Text)
		}
	}
	sort.Strings(added)
	for _, text := range added {
		out = append(out, guidance.Entry{Text: text, Since: g.Step + 1})
	}
	for i := 0; i < len(out); i++ {
		for k := len(out) - 1; k > i; k-- {
			if strings.EqualFold(out[i].Text, out[k].Text) {
				out[i].Hits, out[i].Misses = out[i].Hits+out[k].Hits, out[i].Misses+out[k].Misses
				out[i].LastUsed = max(out[i].LastUsed, out[k].LastUsed)
				out = slices.Delete(out, k, k+1)
			}
		}
	}
	bytes := len(out) - 1 // line breaks
	for _, e := range out {
		bytes += len("1. ") + len(e.Text)
	}
	refuse(guidance.Empties, len(out) == 0)
	refuse(guidance.TooManyEntries, len(out) > lim.Entries)
	refuse(guidance.TooManyTokens, bytes > 4*lim.TotalTokens)
	refuse(guidance.NoChange, slices.EqualFunc(out, g.Entries, func(a, b guidance.Entry) bool { return a.Text == b.Text }))
	return out, refusals
}

// ruleTexts are texts of entries: with repetitions, and the scaffold's line.
var ruleTexts = []string{"a", "b", "c", "A", "B", "Ä", "ä", "ſ", "S", "x y", "X y", "longer than most",
	"one two three four five", "say One two three four FIVE six", "one two three four"}

// drawGuidance returns guidance of a random step with counts.
func drawGuidance(t *rapid.T) guidance.Guidance {
	texts := rapid.SliceOfNDistinct(rapid.SampledFrom(ruleTexts), 0, 6, strings.ToUpper).Draw(t, "entries")
	g, err := guidance.New("m", "Head.\none two three four five\nshort line", texts)
	if err != nil {
		t.Fatal(err)
	}
	if g.Step = rapid.IntRange(0, 3).Draw(t, "step"); g.Step > 0 {
		g.From = strings.Repeat("ab", 32)
	}
	tallies := make(map[int]guidance.Tally)
	for i := range texts {
		if rapid.Bool().Draw(t, "used") {
			count := rapid.IntRange(0, 5)
			tallies[i+1] = guidance.Tally{Hits: count.Draw(t, "hits"), Misses: count.Draw(t, "misses")}
		}
	}
	return g.Count(tallies)
}

var kinds = []guidance.Kind{guidance.Add, guidance.Rewrite, guidance.Merge, guidance.Drop}

// drawOperation returns a well-formed operation on one of n entries, or the next one.
func drawOperation(n int) *rapid.Generator[guidance.Operation] {
	return rapid.Custom(func(t *rapid.T) guidance.Operation {
		number := rapid.OneOf(rapid.IntRange(1, max(n, 1)), rapid.IntRange(1, n+1))
		evidence := rapid.OneOf(rapid.Just("t1"), rapid.SampledFrom([]string{"t1", "t2", "t2", "other"}))
		op := guidance.Operation{Text: rapid.SampledFrom(ruleTexts).Draw(t, "text"), Reason: "r",
			Kind:     rapid.SampledFrom(kinds).Draw(t, "op"),
			Evidence: rapid.SliceOfN(evidence, 1, 2).Draw(t, "evidence")}
		switch op.Kind {
		case guidance.Rewrite:
			op.Entries = []int{number.Draw(t, "entry")}
		case guidance.Merge:
			op.Entries = rapid.SliceOfNDistinct(number, min(2, n+1), 3, rapid.ID).Draw(t, "entries")
		case guidance.Drop:
			op.Entries, op.Text = rapid.SliceOfNDistinct(number, 1, 2, rapid.ID).Draw(t, "entries"), ""
		}
		return op
	}).Filter(func(op guidance.Operation) bool { return op.Kind != guidance.Merge || len(op.Entries) > 1 })
}

var knownTickets = map[string]bool{"t1": true, "t2": true}

func drawPlan(t *rapid.T, g guidance.Guidance) ([]guidance.Operation, guidance.Applying) {
	ops := rapid.SliceOfN(drawOperation(len(g.Entries)), 1, 5).Draw(t, "operations")
	limits := usual()
	if rapid.Bool().Draw(t, "tight") {
		limits = guidance.Limits{Entries: 4, EntryBytes: 100, TotalTokens: 10, Operations: 4}
	}
	return ops, guidance.Applying{Limits: limits, Evidence: func(key string) bool { return knownTickets[key] }}
}

func TestApplyAgreesWithItsTwin(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		g := drawGuidance(t)
		ops, in := drawPlan(t, g)
		want, refusals := twinOf(g, ops, in.Limits, knownTickets)
		got, err := g.Apply(guidance.Plan{Operations: ops}, in)
		if r := refusalOf(t, err); err != nil {
			if !slices.Contains(refusals, r) || string(got.Encode()) != string(g.Encode()) {
				t.Fatalf("%v, with %s; want one of %v", err, got.Encode(), refusals)
			}
			return
		}
		if len(refusals) > 0 || !slices.Equal(want, got.Entries) || got.Step != g.Step+1 ||
			got.From != g.ContentID().String() || got.Scaffold != g.Scaffold {
			t.Fatalf("%s, want %+v or %v", got.Encode(), want, refusals)
		}
		if _, err := guidance.Decode(got.Encode()); err != nil {
			t.Fatal(err)
		}
	})
}

// The order in which models answered, or named entries and tickets, changes neither the
// bytes of the next step nor the message of a refusal.
func TestOrderOfArrivalDoesNotMatter(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		g := drawGuidance(t)
		ops, in := drawPlan(t, g)
		if rapid.Bool().Draw(t, "malformed") { // several faults at once
			for i := range ops {
				ops[i].Reason = rapid.SampledFrom([]string{"r", "", "\x07"}).Draw(t, "reason")
				ops[i].Text += rapid.SampledFrom([]string{"", " ", "\u202e"}).Draw(t, "tail")
			}
		}
		shuffled := rapid.Permutation(ops).Draw(t, "shuffled")
		for i, op := range shuffled {
			shuffled[i].Entries = rapid.Permutation(slices.Clone(op.Entries)).Draw(t, "numbers")
			shuffled[i].Evidence = rapid.Permutation(slices.Clone(op.Evidence)).Draw(t, "keys")
		}
		a, errA := g.Apply(guidance.Plan{Operations: ops}, in)
		b, errB := g.Apply(guidance.Plan{Operations: shuffled}, in)
		if string(a.Encode()) != string(b.Encode()) || (errA == nil) != (errB == nil) ||
			errA != nil && errA.Error() != errB.Error() {
			t.Fatalf("%s, %v\n%s, %v", a.Encode(), errA, b.Encode(), errB)
		}
	})
}
