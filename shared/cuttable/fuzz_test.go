package cuttable_test

import (
	"bytes"
	"io"
	"testing"

	"rollout/shared/cuttable"
	"rollout/shared/fault"
	"rollout/shared/jsonl"
)

// FuzzDuplicates reads hostile id lists: they are Corrupt, or their duplicates
// are in order and each of a line that comes after the first.
func FuzzDuplicates(f *testing.F) {
	f.Add(list(f, "a", "b"), list(f, "b", "c", "b"), list(f))
	f.Add(list(f, "a", "a", "a"), list(f, "a"), []byte("ROLLIDS"))
	f.Fuzz(func(t *testing.T, current, first, second []byte) {
		earlier := readers(first, second)
		found, err := cuttable.Duplicates(bytes.NewReader(current), earlier)
		if err != nil {
			if !fault.Is(err, fault.Corrupt) {
				t.Fatalf("%v is %s", err, fault.Of(err))
			}
			return
		}
		if limit := (len(current) - cuttable.IDHeaderSize) / cuttable.IDEntrySize; len(found) > limit {
			t.Fatalf("%d duplicates in a list of %d", len(found), limit)
		}
		for i, d := range found {
			if i > 0 && d.Item < found[i-1].Item || d.List < cuttable.SameList || d.List > 1 {
				t.Fatalf("duplicate %d is %+v after %+v", i, d, found[max(i, 1)-1])
			}
		}
		for n, r := range earlier { // read to the end, where a list that is cut off shows
			if rest, _ := io.ReadAll(r); len(rest) > 0 {
				t.Fatalf("%d bytes of list %d were not read", len(rest), n)
			}
		}
	})
}

// FuzzCut cuts a file: the rows tile it, keep to the limits and are a table that
// can be read back.
func FuzzCut(f *testing.F) {
	for _, file := range []string{"", "a\n\nb\r\n", "\n\n", "0123456789abcdef\nx", "\xEF\xBB\xBF{}\n[]\n"} {
		f.Add([]byte(file), uint32(2), int64(9))
	}
	f.Fuzz(func(t *testing.T, file []byte, items uint32, limit int64) {
		if items < 1 || limit < 1 {
			items, limit = 2, 9
		}
		rows, totals := cut(t, bytes.NewReader(file), jsonl.Options{MaxLine: 12}, cuttable.CutOptions{MaxItems: int(items), MaxBytes: limit})
		var table []byte
		var n uint64
		for i, r := range rows {
			if r.Items > items || int64(r.Length) > limit && r.Items > 1 {
				t.Fatalf("row %d of %q is %+v, over %d items or %d bytes", i, file, r, items, limit)
			}
			n += uint64(r.Items)
			table = r.Append(table)
		}
		if n != totals.Items {
			t.Fatalf("%d items in rows, %d in all", n, totals.Items)
		}
		if again, err := cuttable.Parse(table); err != nil || len(again) != len(rows) {
			t.Fatalf("the table of %q can't be read: %v", file, err)
		}
	})
}
