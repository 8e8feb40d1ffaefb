package input

import (
	"testing"

	"rollout/shared/record"
)

func TestEntriesFullOfDuplicatesMakeRoomForEachOther(t *testing.T) {
	t.Parallel()
	x := NewIndex(nil, nil)
	sum := func() (n int) {
		for _, e := range x.entries {
			n += len(e.Duplicates)
		}
		return n
	}
	large := make([]record.Duplicate, maxDuplicates/3)
	for n := range 10 {
		for range 2 { // two readers at once
			x.remember(rangeOf{rng: n}, record.IndexEntry{Range: n, Duplicates: large})
		}
		if _, ok := x.entries[rangeOf{rng: n}]; !ok || sum() > maxDuplicates || sum() != x.duplicates {
			t.Fatalf("after entry %d: %d duplicates, counted as %d", n, sum(), x.duplicates)
		}
	}
	x.remember(rangeOf{rng: 99}, record.IndexEntry{Duplicates: make([]record.Duplicate, 2*maxDuplicates)})
	if len(x.entries) != 1 {
		t.Errorf("%d entries beside one that is too large alone", len(x.entries)-1)
	}
	x.remember(rangeOf{rng: 100}, record.IndexEntry{})
	for n := range 2 * maxEntries {
		x.remember(rangeOf{rng: 1000 + n}, record.IndexEntry{})
	}
	if len(x.entries) != maxEntries || x.duplicates != 0 {
		t.Errorf("%d entries, %d duplicates", len(x.entries), x.duplicates)
	}
}
