package input_test

import (
	"testing"

	"rollout/shared/fault"
	"rollout/shared/host/hosttest"
	"rollout/shared/input"
	"rollout/shared/input/inputtest"
)

func TestLocateEveryItemAndLine(t *testing.T) {
	t.Parallel()
	p := hosttest.New()
	var files []string
	for n := range 7 { // of 0 to 6 prompts
		files = append(files, inputtest.Prompts(100*n, n))
	}
	m := inputtest.Plan(t, p, inputtest.Manifest(2), files...)
	x := input.NewIndex(p.Blobs, p.Docs)
	item := uint64(0)
	for n := range 7 {
		for line := range n {
			byItem, err := x.LocateItem(t.Context(), run, item)
			if err != nil {
				t.Fatal(err)
			}
			byLine, err := x.LocateLine(t.Context(), run, n, uint64(line+1))
			if err != nil || byLine.Shard() != byItem.Shard() || byLine.Cut != byItem.Cut {
				t.Errorf("line %d of file %d is in %+v, item %d in %+v, %v", line+1, n, byLine, item, byItem, err)
			}
			s, err := x.LoadShard(t.Context(), m, byItem.Entry.Range, byItem.Row)
			if err != nil || s.FirstItem != byItem.FirstItem() ||
				s.Lines[item-s.FirstItem].Place.Line != uint64(line+1) {
				t.Errorf("item %d: %+v, %v", item, s, err)
			}
			e, row, err := x.FindShard(t.Context(), run, byItem.Shard())
			if err != nil || e.Range != byItem.Entry.Range || row != byItem.Row {
				t.Errorf("shard %d is row %d of range %d, %v", byItem.Shard(), row, e.Range, err)
			}
			item++
		}
		if _, err := x.LocateLine(t.Context(), run, n, uint64(n+1)); !fault.Is(err, fault.NotFound) {
			t.Errorf("a line after the end of file %d: %v", n, err)
		}
	}
	for _, beyond := range []uint64{item, 1 << 63} {
		if _, err := x.LocateItem(t.Context(), run, beyond); !fault.Is(err, fault.NotFound) {
			t.Errorf("item %d of %d: %v", beyond, item, err)
		}
	}
	if _, err := x.LocateLine(t.Context(), run, 99, 1); !fault.Is(err, fault.NotFound) {
		t.Errorf("a file that does not exist: %v", err)
	}
}
