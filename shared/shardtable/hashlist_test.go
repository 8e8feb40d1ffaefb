package shardtable_test

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"io"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"rollout/shared/fault"
	"rollout/shared/shardtable"
)

// hashes is a hash list: its bytes and its number of entries.
type hashes struct {
	bytes []byte
	count int
}

// list returns the list of the ids' hashes. They are items 0, 1, … of a range, on
// lines 10, 11, ….
func list(t interface{ Fatalf(string, ...any) }, rng uint32, ids ...string) hashes {
	var l shardtable.HashList
	for i, id := range ids {
		l.Add(shardtable.HashID([]byte(id)), shardtable.Place{Range: rng, Item: uint32(i), Line: uint32(10 + i)})
	}
	var b bytes.Buffer
	if err := l.Write(&b); err != nil {
		t.Fatalf("Write: %v", err)
	}
	return hashes{b.Bytes(), len(ids)}
}

func open(lists ...hashes) (out []*shardtable.HashReader, err error) {
	for _, l := range lists {
		r, err := shardtable.OpenHashes(bytes.NewReader(l.bytes), uint64(l.count))
		if err != nil {
			return nil, err
		}
		out = append(out, r)
	}
	return out, nil
}

// findRepeats compares the lists of a range with earlier lists. It returns the list
// of new hashes, and the repeats by item.
func findRepeats(current, earlier []hashes,
	skip func(shardtable.Place) bool) (hashes, []shardtable.Repeat, error) {
	c, err := open(current...)
	if err != nil {
		return hashes{}, nil, err
	}
	e, err := open(earlier...)
	if err != nil {
		return hashes{}, nil, err
	}
	var b bytes.Buffer
	w := shardtable.NewHashWriter(&b)
	var repeats []shardtable.Repeat
	err = shardtable.FindRepeats(c, e, skip, w.Append, func(item, first shardtable.Place) error {
		repeats = append(repeats, shardtable.Repeat{Item: item.Item, First: first})
		return nil
	})
	if err != nil {
		return hashes{}, nil, err
	}
	slices.SortFunc(repeats, func(a, b shardtable.Repeat) int { return int(a.Item) - int(b.Item) })
	err = w.Flush()
	return hashes{b.Bytes(), int(w.Count())}, repeats, err
}

func TestHashListGoldenBytes(t *testing.T) {
	t.Parallel()
	const want = "524f4c4c48534801" + "0000001c" + "00000000" +
		"10e5cf3d3c8a4f9f3468c8cc58eea848" + "00000002" + "00000000" + "0000000a" +
		"17762fddd969a453925d65717ac3eea2" + "00000002" + "00000001" + "0000000b"
	b := list(t, 2, "b", "a").bytes
	if got := hex.EncodeToString(b); got != want {
		t.Errorf("the format changed:\n%s, want\n%s", got, want)
	}
	if len(b) != shardtable.HashHeaderSize+2*shardtable.HashEntrySize {
		t.Errorf("%d bytes", len(b))
	}
}

func TestC06FindRepeats(t *testing.T) {
	t.Parallel()
	first := func(item, rng, of uint32) shardtable.Repeat {
		return shardtable.Repeat{Item: item, First: shardtable.Place{Range: rng, Item: of, Line: 10 + of}}
	}
	for _, c := range []struct {
		name    string
		current []hashes
		earlier []hashes
		skip    uint32 // an item, from 1
		want    []shardtable.Repeat
		news    int
	}{
		{"no hashes", []hashes{list(t, 1)}, []hashes{list(t, 0)}, 0, nil, 0},
		{"no repeats", []hashes{list(t, 1, "a", "b")}, []hashes{list(t, 0, "c")}, 0, nil, 2},
		{"within the range", []hashes{list(t, 1, "a", "b", "a", "a")}, nil, 0,
			[]shardtable.Repeat{first(2, 1, 0), first(3, 1, 0)}, 2},
		{"of an earlier range", []hashes{list(t, 2, "x", "a")}, []hashes{list(t, 0, "c"), list(t, 1, "b", "a")}, 0,
			[]shardtable.Repeat{first(1, 1, 1)}, 1},
		{"the first item of all is named", []hashes{list(t, 2, "a", "a")},
			[]hashes{list(t, 0, "z", "a"), list(t, 1, "b")}, 0,
			[]shardtable.Repeat{first(0, 0, 1), first(1, 0, 1)}, 0},
		{"a skipped item is not the first", []hashes{list(t, 1, "a", "a", "a")}, nil, 1,
			[]shardtable.Repeat{first(2, 1, 1)}, 1},
		{"a skipped item is not a repeat", []hashes{list(t, 1, "a", "a", "a")}, nil, 2,
			[]shardtable.Repeat{first(2, 1, 0)}, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			skip := func(at shardtable.Place) bool { return at.Item+1 == c.skip }
			news, got, err := findRepeats(c.current, c.earlier, skip)
			if diff := cmp.Diff(c.want, got); diff != "" || err != nil || news.count != c.news {
				t.Errorf("%d new entries, %v, -want +got:\n%s", news.count, err, diff)
			}
		})
	}
}

// TestFindRepeatsAgreesWithAMap compares range by range, in segments, joins lists at
// random, and checks the repeats with a map.
func TestFindRepeatsAgreesWithAMap(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		ranges := rapid.SliceOfN(rapid.SliceOfN(rapid.StringMatching(`[a-e]{1,2}`), 0, 20), 1, 6).Draw(t, "ranges")
		first := map[string]shardtable.Place{}
		var lists []hashes
		for k, ids := range ranges {
			cut := rapid.IntRange(0, len(ids)).Draw(t, "cut")
			var want []shardtable.Repeat
			parts := [2]shardtable.HashList{}
			for i, id := range ids {
				p := shardtable.Place{Range: uint32(k), Item: uint32(i), Line: uint32(2 * i)}
				part := &parts[0]
				if i >= cut {
					part = &parts[1]
				}
				part.Add(shardtable.HashID([]byte(id)), p)
				if f, ok := first[id]; ok {
					want = append(want, shardtable.Repeat{Item: p.Item, First: f})
				} else {
					first[id] = p
				}
			}
			var segments []hashes
			for i := range parts {
				var b bytes.Buffer
				n := parts[i].Len()
				if err := parts[i].Write(&b); err != nil {
					t.Fatal(err)
				}
				segments = append(segments, hashes{b.Bytes(), n})
			}
			news, got, err := findRepeats(segments, lists, nil)
			if diff := cmp.Diff(want, got); diff != "" || err != nil {
				t.Fatalf("range %d, %v, -want +got:\n%s", k, err, diff)
			}
			lists = append(lists, news)
			if rapid.Bool().Draw(t, "join") {
				joined, repeats, err := findRepeats(lists, nil, nil)
				if err != nil || len(repeats) > 0 || joined.count != len(first) {
					t.Fatalf("joined: %d of %d, %d repeats, %v", joined.count, len(first), len(repeats), err)
				}
				lists = []hashes{joined}
			}
		}
	})
}

// TestFindRepeatsSkipsMostOfLongLists searches for ids in earlier lists of several
// pages, most of whose entries are skipped.
func TestFindRepeatsSkipsMostOfLongLists(t *testing.T) {
	t.Parallel()
	ids := func(from, to, step int) (out []string) {
		for i := from; i < to; i += step {
			out = append(out, fmt.Sprint(i))
		}
		return out
	}
	for _, step := range []int{1, 7, 100, 1999} {
		current := ids(0, 6000, step)
		earlier := []hashes{list(t, 0, ids(0, 2000, 1)...), list(t, 1, ids(2000, 4000, 1)...)}
		news, got, err := findRepeats([]hashes{list(t, 2, current...)}, earlier, nil)
		if err != nil || news.count+len(got) != len(current) {
			t.Fatalf("step %d: %d new entries and %d repeats of %d, %v", step, news.count, len(got), len(current), err)
		}
		for i, r := range got {
			n := i * step
			want := shardtable.Place{Range: uint32(n / 2000), Item: uint32(n % 2000), Line: uint32(10 + n%2000)}
			if n >= 4000 || r.First != want || int(r.Item) != i {
				t.Errorf("step %d: repeat %d is %+v, want one of %+v", step, i, r, want)
			}
		}
	}
}

func TestHostileHashListsAreCorrupt(t *testing.T) {
	t.Parallel()
	good := list(t, 0, "a", "b", "c")
	at := func(i int) int { return shardtable.HashHeaderSize + i*shardtable.HashEntrySize }
	swapped := slices.Concat(good.bytes[:at(0)], good.bytes[at(1):at(2)], good.bytes[at(0):at(1)], good.bytes[at(2):])
	flip := func(at int) []byte {
		b := bytes.Clone(good.bytes)
		b[at] ^= 1
		return b
	}
	for name, bad := range map[string]hashes{
		"empty": {nil, 3}, "short header": {good.bytes[:15], 3}, "truncated": {good.bytes[:at(3)-1], 3},
		"trailing": {append(bytes.Clone(good.bytes), 0), 3}, "count too small": {good.bytes, 2},
		"count too large": {good.bytes, 4}, "huge count": {good.bytes, -1}, "unsorted": {swapped, 3},
		"magic": {flip(0), 3}, "version": {flip(7), 3}, "entry size": {flip(11), 3}, "reserved": {flip(15), 3},
	} {
		if _, _, err := findRepeats([]hashes{bad}, nil, nil); !fault.Is(err, fault.Corrupt) {
			t.Errorf("%s: %v", name, err)
		}
		current := list(t, 1, "a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k")
		_, _, err := findRepeats([]hashes{current}, []hashes{bad}, nil)
		unread := name == "trailing" || name == "count too small" // the search ends before the damage
		if !unread && !fault.Is(err, fault.Corrupt) {
			t.Errorf("earlier, %s: %v", name, err)
		}
	}
}

func TestRepeatPagesHoldTheRepeatsOfAShard(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		count := rapid.SampledFrom([]int{1, 2, 1023, 1024, 1025, 3000}).Draw(t, "count")
		step := rapid.IntRange(1, 3).Draw(t, "step")
		var b bytes.Buffer
		w := shardtable.NewRepeatWriter(&b)
		for i := range count {
			first := shardtable.Place{Range: 1, Item: uint32(i), Line: 3}
			if err := w.Append(shardtable.Repeat{Item: uint32(i * step), First: first}); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Flush(); err != nil {
			t.Fatal(err)
		}
		index, err := shardtable.ParseRepeatIndex(b.Bytes()[shardtable.RepeatOffset(count):], count)
		if err != nil {
			t.Fatal(err)
		}
		lo := rapid.IntRange(0, count*step+5).Draw(t, "lo")
		hi := lo + rapid.IntRange(1, 2000).Draw(t, "items")
		from, to := index.Pages(uint32(lo), uint32(hi))
		if to-from > (hi-lo)/shardtable.RepeatPage/step+2 {
			t.Fatalf("items %d to %d are in pages %d to %d", lo, hi, from, to)
		}
		var got []shardtable.Repeat
		if from < to {
			start := shardtable.RepeatOffset(from * shardtable.RepeatPage)
			end := shardtable.RepeatOffset(min(to*shardtable.RepeatPage, count))
			page := b.Bytes()[start:end]
			if got, err = shardtable.ParseRepeats(page, uint32(lo), uint32(hi)); err != nil {
				t.Fatal(err)
			}
		}
		n := 0
		for i := range count {
			if item := i * step; item >= lo && item < hi {
				if n >= len(got) || got[n].Item != uint32(item) || got[n].First.Item != uint32(i) {
					t.Fatalf("item %d is not repeat %d of %v", item, n, got)
				}
				n++
			}
		}
		if n != len(got) {
			t.Fatalf("%d repeats, want %d", len(got), n)
		}
	})
}

func TestHostileRepeatsAreCorrupt(t *testing.T) {
	t.Parallel()
	e := make([]byte, shardtable.RepeatSize)
	for name, f := range map[string]func() error{
		"index of another length": func() error {
			_, err := shardtable.ParseRepeatIndex(make([]byte, 4), 2000)
			return err
		},
		"index is not sorted": func() error {
			_, err := shardtable.ParseRepeatIndex(make([]byte, 8), 2000)
			return err
		},
		"half an entry":  func() error { _, err := shardtable.ParseRepeats(e[1:], 0, 9); return err },
		"one item twice": func() error { _, err := shardtable.ParseRepeats(append(e, e...), 0, 9); return err },
	} {
		if err := f(); !fault.Is(err, fault.Corrupt) {
			t.Errorf("%s: %v", name, err)
		}
	}
	w := shardtable.NewRepeatWriter(io.Discard)
	_ = w.Append(shardtable.Repeat{Item: 1})
	if err := w.Append(shardtable.Repeat{Item: 1}); !fault.Is(err, fault.Internal) {
		t.Errorf("one item written twice: %v", err)
	}
}

func BenchmarkIDs(b *testing.B) {
	const n = 50_000
	ids := make([][]byte, n)
	for i := range ids {
		ids[i] = fmt.Appendf(nil, "request-%d", i)
	}
	for b.Loop() {
		var l shardtable.HashList
		for i, id := range ids {
			l.Add(shardtable.HashID(id), shardtable.Place{Item: uint32(i)})
		}
		var out bytes.Buffer
		l.Write(&out)
		if news, d, err := findRepeats([]hashes{{out.Bytes(), n}}, nil, nil); len(d) > 0 || err != nil || news.count != n {
			b.Fatal(d, err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*n), "ns/id")
}

// BenchmarkFindRepeats compares a range's ids with ten million ids of earlier ranges,
// in ten lists.
func BenchmarkFindRepeats(b *testing.B) {
	const n, lists = 1_000_000, 10
	ids := func(rng, n int) hashes {
		var out bytes.Buffer
		var l shardtable.HashList
		for i := range n {
			p := shardtable.Place{Range: uint32(rng), Item: uint32(i)}
			l.Add(shardtable.HashID(fmt.Appendf(nil, "%d-%d", rng, i)), p)
		}
		if err := l.Write(&out); err != nil {
			b.Fatal(err)
		}
		return hashes{out.Bytes(), n}
	}
	var earlier []hashes
	for k := range lists {
		earlier = append(earlier, ids(k, n))
	}
	current := ids(lists, 50_000)
	for b.Loop() {
		c, err := open(current)
		if err != nil {
			b.Fatal(err)
		}
		e, err := open(earlier...)
		if err != nil {
			b.Fatal(err)
		}
		if err := shardtable.FindRepeats(c, e, nil, nil, nil); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*n*lists), "ns/earlier")
}
