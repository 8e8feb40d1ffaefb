package result_test

import (
	"bytes"
	"testing"

	"pgregory.net/rapid"

	"rollout/shared/fault"
	"rollout/shared/result"
)

var indexed = []result.Row{
	{Item: 0, Bytes: []byte("{\"line\":0}\n"), Copy: &result.Copied{Original: 1 << 40, Line: 7}},
	{Item: 1, Class: fault.Refused, Bytes: []byte("{\"e\":1}\n")},
	{Item: 2, Bytes: []byte("{\"a\":2}\n")},
	{Item: 3, Bytes: []byte("{\"line\":3}\n"), Copy: &result.Copied{}},
	{Item: 4, Bytes: []byte("{\"a\":4}\n")},
}

func TestAppendIndexedOrdersOutputsErrorsCopies(t *testing.T) {
	t.Parallel()
	b, n := result.AppendIndexed([]byte("before\n"), indexed)
	if n != 16 || !bytes.HasPrefix(b, []byte("before\n{\"a\":2}\n{\"a\":4}\n{\"e\":1}\n{\"line\":0}\n{\"line\":3}\n")) {
		t.Errorf("%q, %d bytes of output", b, n)
	}
}

func TestParseIndexFindsEveryItem(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		rows := rapid.SliceOfN(rapid.SampledFrom(indexed), 0, 300).Draw(t, "rows")
		b, _ := result.AppendIndexed(nil, rows)
		tail := b[len(b)-rapid.IntRange(8, len(b)).Draw(t, "tail"):]
		parts, need, err := result.ParseIndex(tail, int64(len(b)), len(rows))
		if err == nil && need > 0 {
			if need <= len(tail) || need > len(b) {
				t.Fatalf("a tail of %d of %d bytes needs %d bytes", len(tail), len(b), need)
			}
			parts, need, err = result.ParseIndex(b[len(b)-need:], int64(len(b)), len(rows))
		}
		if err != nil || need > 0 || len(parts) != len(rows) {
			t.Fatalf("%d parts of %d, need %d, %v", len(parts), len(rows), need, err)
		}
		for i, p := range parts {
			r := rows[i]
			if !bytes.Equal(b[p.Offset:p.Offset+p.Length], r.Bytes) || p.Class != r.Class ||
				(p.Kind == result.RowCopy) != (r.Copy != nil) || r.Copy != nil && p.Copied != *r.Copy {
				t.Fatalf("item %d is %+v, want %+v", i, p, r)
			}
		}
	})
}

func TestHostileIndexesAreCorrupt(t *testing.T) {
	t.Parallel()
	good, _ := result.AppendIndexed(nil, indexed)
	flip := func(at int) []byte {
		b := bytes.Clone(good)
		b[at] ^= 0x80
		return b
	}
	for name, c := range map[string]struct {
		tail   []byte
		length int
		items  int
	}{
		"empty":                        {nil, len(good), 5},
		"no magic":                     {flip(len(good) - 1), len(good), 5},
		"index longer than the result": {good[len(good)-8:], 9, 5},
		"huge index":                   {flip(len(good) - 5), len(good), 5},
		"too many items expected":      {good, len(good), 6},
		"too few items expected":       {good, len(good), 4},
		"length too small":             {good, len(good) - 1, 5},
		"length too large":             {good, len(good) + 1, 5},
		"unknown kind":                 {flip(len(good) - 9 - 3), len(good), 5},
	} {
		if _, need, err := result.ParseIndex(c.tail, int64(c.length), c.items); !fault.Is(err, fault.Corrupt) {
			t.Errorf("%s: need %d, %v", name, need, err)
		}
	}
}

func TestAppendCheckpointOmitsCopies(t *testing.T) {
	t.Parallel()
	b, err := result.AppendCheckpoint(nil, indexed)
	if err != nil {
		t.Fatal(err)
	}
	got, err := result.ParseCheckpoint(b, 5)
	if err != nil || len(got) != 3 || got[0].Item != 1 || got[1].Item != 2 || got[2].Item != 4 ||
		string(got[2].Bytes) != "{\"a\":4}\n" {
		t.Errorf("%+v, %v", got, err)
	}
}

func FuzzParseIndex(f *testing.F) {
	b, _ := result.AppendIndexed(nil, indexed)
	f.Add(b, int64(len(b)), 5)
	f.Add(b[len(b)-8:], int64(len(b)), 5)
	f.Fuzz(func(t *testing.T, tail []byte, length int64, items int) {
		if items < 0 || items > 1<<16 || length < 0 {
			return
		}
		parts, need, err := result.ParseIndex(tail, length, items)
		if err != nil && !fault.Is(err, fault.Corrupt) || need > 0 && (int64(need) > length || need <= len(tail)) {
			t.Fatalf("need %d of %d, %v", need, length, err)
		}
		for i, p := range parts {
			if err == nil && (p.Offset < 0 || p.Length < 1 || p.Offset+p.Length > length) {
				t.Fatalf("item %d is %+v of %d", i, p, length)
			}
		}
	})
}
