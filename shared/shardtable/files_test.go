package shardtable

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"rollout/shared/fault"
)

func TestInheritedRowsAreReadAsTheyWereWritten(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var want []Inherited
		var b []byte
		for range rapid.IntRange(0, 9).Draw(t, "rows") {
			n := func(label string) uint64 { return rapid.Uint64().Draw(t, label) }
			r := Inherited{FileEntry: FileEntry{n("outputs"), n("errors"), uint32(n("ok")), uint32(n("failed"))},
				Touched: rapid.Bool().Draw(t, "touched"), FirstItem: n("first"), OutputAt: n("at"), ErrorAt: n("errors at")}
			want = append(want, r)
			b = r.Append(b)
			if len(b) != len(want)*InheritedSize || ParseFileEntry(b[len(b)-InheritedSize:]) != r.FileEntry {
				t.Fatalf("%+v is written as %x", r, b)
			}
		}
		got, err := ParseInherited(b)
		if err != nil || !cmp.Equal(got, append([]Inherited{}, want...)) {
			t.Fatalf("%+v is read as %+v, %v", want, got, err)
		}
		if _, err := ParseInherited(append(b, 0)); !fault.Is(err, fault.Corrupt) {
			t.Fatalf("a part of a row: %v", err)
		}
	})
}
