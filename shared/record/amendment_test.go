package record

import (
	"testing"

	"rollout/shared/core/identity"
)

func TestEachRangeBelongsToTheRunThatMadeIt(t *testing.T) {
	t.Parallel()
	const own, oldest, first, second identity.RunID = "own", "oldest", "first", "second"
	amended := Plan{Shards: 9, Appended: &Appended{Input: 3}, Inherited: &Inheritance{Plan: oldest, Shards: 7,
		Amended: []AddedRanges{{Run: first, Source: 2, Range: 4}, {Run: second, Source: 3, Range: 6}}}}
	for name, c := range map[string]struct {
		plan   Plan
		ranges []identity.RunID // of ranges 0, 3, 4, 5, 6
		shards int
	}{
		"a run of its own": {Plan{Shards: 9}, []identity.RunID{own, own, own, own, own}, 0},
		"a child": {Plan{Shards: 9, Inherited: &Inheritance{Plan: oldest}},
			[]identity.RunID{oldest, oldest, oldest, oldest, oldest}, 9},
		"an amended run": {amended, []identity.RunID{oldest, oldest, first, first, second}, 7},
	} {
		for n, rng := range []int{0, 3, 4, 5, 6} {
			if got := c.plan.RangeOwner(own, rng); got != c.ranges[n] {
				t.Errorf("%s: range %d belongs to %s", name, rng, got)
			}
		}
		if got := c.plan.InheritedShards(); got != c.shards {
			t.Errorf("%s: %d shards are inherited", name, got)
		}
	}
	if src, ok := amended.Source(own, 2); !ok || src.Key != AppendedKey(first, 2) {
		t.Errorf("source 2 is %+v", src)
	}
	if src, ok := amended.Source(own, 1); !ok || src.Key != AppendedKey(oldest, 1) {
		t.Errorf("source 1 is %+v", src)
	}
}

func TestAmendmentIsReadable(t *testing.T) {
	t.Parallel()
	for want, p := range map[string]Parent{
		"amends run R: 5 replications": {Run: "R", Amend: &Amendment{Replications: 5}},
		"amends run R: variants a and b, the tasks of x.t": {Run: "R",
			Amend: &Amendment{Variants: []string{"a", "b"}, Tasks: "x.t"}},
		"retries run R: failed": {Run: "R", Selection: Selection{Only: []string{SelectFailed}}},
	} {
		if got := p.String(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
