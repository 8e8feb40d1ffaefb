package cuttable_test

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"io"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"rollout/shared/cuttable"
	"rollout/shared/fault"
)

// list writes the ids as items 0, 1, … on lines 10, 11, ….
func list(t interface{ Fatalf(string, ...any) }, ids ...string) []byte {
	var l cuttable.IDList
	for i, id := range ids {
		l.Add([]byte(id), uint32(i), uint32(10+i))
	}
	var b bytes.Buffer
	if err := l.Write(&b, 1, 2); err != nil {
		t.Fatalf("Write: %v", err)
	}
	return b.Bytes()
}

func readers(lists ...[]byte) []io.Reader {
	out := make([]io.Reader, len(lists))
	for i, l := range lists {
		out[i] = bytes.NewReader(l)
	}
	return out
}

func TestIDListGoldenBytes(t *testing.T) {
	t.Parallel()
	const want = "524f4c4c49445301" + "18000000" + "01000000" + "02000000" + "00000000" + "0200000000000000" +
		"10e5cf3d3c8a4f9f3468c8cc58eea848" + "00000000" + "0a000000" + "17762fddd969a453925d65717ac3eea2" + "01000000" + "0b000000"
	b := list(t, "b", "a")
	if got := hex.EncodeToString(b); got != want {
		t.Errorf("the format changed:\n%s, want\n%s", got, want)
	}
	if len(b) != cuttable.IDHeaderSize+2*cuttable.IDEntrySize {
		t.Errorf("%d bytes", len(b))
	}
}

func TestC06DuplicatesAreFound(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		current []byte
		earlier [][]byte
		want    []cuttable.Duplicate
	}{
		{"no ids", list(t), [][]byte{list(t)}, nil},
		{"none", list(t, "a", "b"), [][]byte{list(t, "c")}, nil},
		{"within the range", list(t, "a", "b", "a", "a"), nil, []cuttable.Duplicate{{2, 12, cuttable.SameList, 0, 10}, {3, 13, cuttable.SameList, 0, 10}}},
		{"with an earlier range", list(t, "x", "a"), [][]byte{list(t, "c"), list(t, "b", "a", "a")}, []cuttable.Duplicate{{1, 11, 1, 1, 11}}},
		{"the first of all wins", list(t, "a", "a"), [][]byte{list(t, "z", "a"), list(t, "a")}, []cuttable.Duplicate{{0, 10, 0, 1, 11}, {1, 11, 0, 1, 11}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			got, err := cuttable.Duplicates(bytes.NewReader(c.current), readers(c.earlier...))
			if diff := cmp.Diff(c.want, got); diff != "" || err != nil {
				t.Errorf("%v, -want +got:\n%s", err, diff)
			}
		})
	}
}

func TestDuplicatesAgreeWithAMap(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		ranges := rapid.SliceOfN(rapid.SliceOfN(rapid.StringMatching(`[a-e]{1,2}`), 0, 20), 1, 5).Draw(t, "ranges")
		lists := make([][]byte, len(ranges))
		type place struct{ list, item int }
		first := map[string]place{}
		for i, ids := range ranges {
			lists[i] = list(t, ids...)
			got, err := cuttable.Duplicates(bytes.NewReader(lists[i]), readers(lists[:i]...))
			if err != nil {
				t.Fatalf("range %d: %v", i, err)
			}
			var want []cuttable.Duplicate
			for k, id := range ids {
				p, ok := first[id]
				if !ok {
					first[id] = place{i, k}
					continue
				}
				if p.list == i {
					want = append(want, cuttable.Duplicate{uint32(k), uint32(10 + k), cuttable.SameList, uint32(p.item), uint32(10 + p.item)})
				} else {
					want = append(want, cuttable.Duplicate{uint32(k), uint32(10 + k), p.list, uint32(p.item), uint32(10 + p.item)})
				}
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Fatalf("range %d, -want +got:\n%s", i, diff)
			}
		}
	})
}

func TestHostileIDListsAreCorrupt(t *testing.T) {
	t.Parallel()
	good := list(t, "a", "b", "c")
	swapped := append(bytes.Clone(good[:32]), append(bytes.Clone(good[56:80]), append(bytes.Clone(good[32:56]), good[80:]...)...)...)
	flip := func(at int) []byte {
		b := bytes.Clone(good)
		b[at] ^= 1
		return b
	}
	for name, bad := range map[string][]byte{"empty": nil, "short header": good[:31], "cut off": good[:len(good)-1], "trailing": append(bytes.Clone(good), 0), "unsorted": swapped,
		"magic": flip(0), "version": flip(7), "entry size": flip(8), "reserved": flip(20), "count": flip(31)} {
		if _, err := cuttable.Duplicates(bytes.NewReader(bad), nil); !fault.Is(err, fault.Corrupt) {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := cuttable.Duplicates(bytes.NewReader(good), readers(bad)); !fault.Is(err, fault.Corrupt) {
			t.Errorf("earlier %s: %v", name, err)
		}
	}
}

func BenchmarkIDs(b *testing.B) {
	const n = 50_000
	ids := make([][]byte, n)
	for i := range ids {
		ids[i] = fmt.Appendf(nil, "request-%d", i)
	}
	for b.Loop() {
		var l cuttable.IDList
		for i, id := range ids {
			l.Add(id, uint32(i), uint32(i))
		}
		var out bytes.Buffer
		l.Write(&out, 0, 0)
		if d, err := cuttable.Duplicates(bytes.NewReader(out.Bytes()), nil); len(d) > 0 || err != nil {
			b.Fatal(d, err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*n), "ns/id")
}
