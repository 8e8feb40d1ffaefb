package shardtable_test

import (
	"bytes"
	"testing"

	"rollout/shared/fault"
	"rollout/shared/jsonl"
	"rollout/shared/shardtable"
)

// FuzzFindRepeats reads hostile hash lists. They are Corrupt, or every entry of the
// current list is new or repeats one, and the new entries form a list again.
func FuzzFindRepeats(f *testing.F) {
	f.Add(list(f, 1, "a", "b").bytes, 2, list(f, 0, "b", "c", "b").bytes, 3)
	f.Add(list(f, 1, "a", "a", "a").bytes, 3, list(f, 0).bytes, 0)
	f.Add(list(f, 1, "a").bytes, 1, []byte("ROLLHSH"), 1)
	f.Fuzz(func(t *testing.T, current []byte, n int, earlier []byte, m int) {
		lists := []hashes{{current, n}}
		news, repeats, err := findRepeats(lists, []hashes{{earlier, m}}, nil)
		if err != nil {
			if !fault.Is(err, fault.Corrupt) {
				t.Fatalf("%v is %s", err, fault.KindOf(err))
			}
			return
		}
		if news.count+len(repeats) != n {
			t.Fatalf("%d new entries and %d repeats of %d", news.count, len(repeats), n)
		}
		again, more, err := findRepeats([]hashes{news}, nil, nil)
		if err != nil || len(more) > 0 || !bytes.Equal(again.bytes, news.bytes) {
			t.Fatalf("the new entries are not a list: %d repeats, %v", len(more), err)
		}
	})
}

// FuzzRepeats reads hostile repeats. They are Corrupt or in order.
func FuzzRepeats(f *testing.F) {
	f.Add(make([]byte, 2*shardtable.RepeatSize), uint32(0), uint32(9))
	f.Fuzz(func(t *testing.T, b []byte, lo, hi uint32) {
		rs, err := shardtable.ParseRepeats(b, lo, hi)
		if err != nil && !fault.Is(err, fault.Corrupt) {
			t.Fatalf("%v is %s", err, fault.KindOf(err))
		}
		for i, r := range rs {
			if r.Item < lo || r.Item >= hi || i > 0 && r.Item <= rs[i-1].Item {
				t.Fatalf("repeat %d is %+v", i, r)
			}
		}
		x, err := shardtable.ParseRepeatIndex(b, len(b)/4*shardtable.RepeatPage)
		if from, to := x.Pages(lo, hi); err == nil && (from < 0 || to > len(x)) {
			t.Fatalf("pages %d to %d of %d", from, to, len(x))
		}
	})
}

// FuzzCut cuts a file. The rows tile it, keep to the limits, and form a table that
// Parse reads.
func FuzzCut(f *testing.F) {
	for _, file := range []string{"", "a\n\nb\r\n", "\n\n", "0123456789abcdef\nx", "\xEF\xBB\xBF{}\n[]\n"} {
		f.Add([]byte(file), uint32(2), int64(9))
	}
	f.Fuzz(func(t *testing.T, file []byte, items uint32, limit int64) {
		if items < 1 || limit < 1 {
			items, limit = 2, 9
		}
		o := shardtable.CutOptions{MaxItems: int(items), MaxBytes: limit}
		rows, totals := cut(t, bytes.NewReader(file), jsonl.Options{MaxLine: 12}, o)
		var table []byte
		var n uint64
		for i, r := range rows {
			blanks := r.Lines > r.Items // they belong to the shard before them, without a limit
			if r.Items > items || int64(r.Length) > limit && r.Items > 1 && !blanks {
				t.Fatalf("row %d of %q is %+v, over %d items or %d bytes", i, file, r, items, limit)
			}
			n += uint64(r.Items)
			table = r.Append(table)
		}
		if n != totals.Items {
			t.Fatalf("the rows have %d items, the totals %d", n, totals.Items)
		}
		if again, err := shardtable.Parse(table); err != nil || len(again) != len(rows) {
			t.Fatalf("the table of %q cannot be read: %v", file, err)
		}
	})
}
