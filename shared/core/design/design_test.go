package design_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"rollout/shared/core/design"
)

// letters writes a schedule: the task as a letter, the variant as a number, and an apostrophe for
// each replication before.
func letters(d design.Design) string {
	var out []string
	for p := range d.Schedule() {
		out = append(out, fmt.Sprintf("%c%d%s", 'a'+p.Task, p.Variant, strings.Repeat("'", p.Replication)))
	}
	return strings.Join(out, " ")
}

func TestOrdersOfASchedule(t *testing.T) {
	t.Parallel()
	for order, want := range map[design.Order]string{
		design.ByTask:      "a0 a0' a1 a1' b0 b0' b1 b1'",
		design.ByVariant:   "a0 a0' b0 b0' a1 a1' b1 b1'",
		design.Interleaved: "a0 a1 b0 b1 a0' a1' b0' b1'",
		design.Random:      "a1' a1 b1 a0' a0 b0' b1' b0",
	} {
		if got := letters(design.Design{Tasks: 2, Variants: 2, Replications: 2, Order: order, Seed: 7}); got != want {
			t.Errorf("%s: %s, want %s", order, got, want)
		}
	}
}

// TestScheduleHasEachTrialOnce checks every order, and that a caller may stop.
func TestScheduleHasEachTrialOnce(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		d := design.Design{Tasks: rapid.IntRange(0, 6).Draw(t, "tasks"), Variants: rapid.IntRange(0, 4).Draw(t, "variants"),
			Replications: rapid.IntRange(0, 4).Draw(t, "replications"), Seed: rapid.Uint64().Draw(t, "seed"),
			Order: rapid.SampledFrom([]design.Order{design.ByTask, design.ByVariant, design.Interleaved,
				design.Random}).Draw(t, "order")}
		var slots []int
		for p := range d.Schedule() {
			slots = append(slots, d.Slot(p))
		}
		slices.Sort(slots)
		for want, got := range slots {
			if want != got {
				t.Fatalf("the slots of %+v are %v", d, slots)
			}
		}
		if len(slots) != d.Trials() {
			t.Fatalf("%+v has %d trials, not %d", d, len(slots), d.Trials())
		}
		stop, seen := rapid.IntRange(1, 5).Draw(t, "stop"), 0
		for range d.Schedule() {
			if seen++; seen == stop {
				break
			}
		}
		if seen != min(stop, d.Trials()) {
			t.Fatalf("%d trials were yielded to a caller that wants %d", seen, stop)
		}
	})
}

func TestSeedDependsOnEachPartAndOnNothingElse(t *testing.T) {
	t.Parallel()
	seeds := map[int64]bool{}
	for _, seed := range []uint64{0, 1} {
		for _, task := range []string{"", "a", "ab"} {
			for _, variant := range []string{"", "b", "bc"} {
				for replication := range 3 {
					s := design.SeedOf(seed, task, variant, replication)
					if s < 0 || s > 1<<31-1 || seeds[s] {
						t.Errorf("seed %d of %q, %q, %d", s, task, variant, replication)
					}
					seeds[s] = true
				}
			}
		}
	}
	if s := design.SeedOf(7, "task", "terse", 2); s != 989139839 { // never changes: it is in every request
		t.Errorf("the golden seed is %d", s)
	}
}
