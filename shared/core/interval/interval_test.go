package interval

import (
	"encoding/json"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func TestSetBehavesAsMap(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var s Set
		twin := map[int]bool{}
		for range rapid.IntRange(0, 40).Draw(t, "ops") {
			lo := rapid.IntRange(0, 60).Draw(t, "lo")
			if rapid.IntRange(0, 3).Draw(t, "remove") == 0 {
				if was := s.Remove(lo); was != twin[lo] {
					t.Fatalf("Remove(%d) = %v, twin has %v", lo, was, twin[lo])
				}
				delete(twin, lo)
				continue
			}
			if rapid.Bool().Draw(t, "one") {
				if fresh := s.Add(lo); fresh == twin[lo] {
					t.Fatalf("Add(%d) = %v, twin has %v", lo, fresh, twin[lo])
				}
				twin[lo] = true
				continue
			}
			hi := lo + rapid.IntRange(0, 10).Draw(t, "len")
			s.AddRange(Range{lo, hi})
			for n := lo; n < hi; n++ {
				twin[n] = true
			}
		}
		b, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		var back Set
		if err := json.Unmarshal(b, &back); err != nil {
			t.Fatal(err)
		}
		for _, set := range []Set{s, back, s.Clone()} {
			checkTwin(t, set, twin)
		}
	})
}

func checkTwin(t *rapid.T, s Set, twin map[int]bool) {
	if s.Len() != len(twin) || s.IsZero() != (len(twin) == 0) {
		t.Fatalf("Len = %d, IsZero %v, twin %d", s.Len(), s.IsZero(), len(twin))
	}
	missing := Of(s.Missing(Range{0, 80})...)
	for n := range 80 {
		if s.Has(n) != twin[n] || missing.Has(n) == twin[n] {
			t.Fatalf("%d: Has %v, Missing %v, twin %v", n, s.Has(n), missing.Has(n), twin[n])
		}
		gap := n
		for twin[gap] {
			gap++
		}
		if s.Gap(n) != gap {
			t.Fatalf("Gap(%d) = %d, twin %d", n, s.Gap(n), gap)
		}
		next := n
		for !twin[next] && next < 80 {
			next++
		}
		if got, ok := s.Next(n); ok != (next < 80) || ok && got != next {
			t.Fatalf("Next(%d) = %d, %v, twin %d", n, got, ok, next)
		}
	}
	for i, r := range s.Ranges() {
		if r.Len() <= 0 || i > 0 && s.Ranges()[i-1].Hi >= r.Lo {
			t.Fatalf("the ranges %v overlap or touch", s.Ranges())
		}
	}
}

// TestUnionEqualsASet compares Union with a Set of the same ranges.
func TestUnionEqualsASet(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var rs []Range
		for range rapid.IntRange(0, 12).Draw(t, "ranges") {
			lo := rapid.IntRange(0, 60).Draw(t, "lo")
			rs = append(rs, Range{lo, lo + rapid.IntRange(0, 9).Draw(t, "len")})
		}
		if got, want := Union(rs), Of(rs...).Ranges(); !slices.Equal(got, want) {
			t.Fatalf("Union(%v) = %v, want %v", rs, got, want)
		}
	})
}

func TestUnmarshalRejectsInvalidSets(t *testing.T) {
	t.Parallel()
	for _, in := range []string{`[3]`, `[3,0]`, `[-1,2]`, `[0,-1]`, `[0,2,0,2]`, `["a",1]`, `[[1,2]]`, `{}`,
		`[9223372036854775807,1]`, `[1,9223372036854775807]`, `[1e30,1]`} {
		var s Set
		if err := json.Unmarshal([]byte(in), &s); err == nil {
			t.Errorf("%s is accepted as %v", in, s.Ranges())
		}
	}
}

func TestSetJSON(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		set  Set
		want string
	}{
		{Set{}, `[]`},
		{Of(Range{0, 5}), `[0,5]`},
		{Of(Range{2, 3}, Range{7, 9}), `[2,1,4,2]`},
	} {
		if b, err := json.Marshal(c.set); err != nil || string(b) != c.want {
			t.Errorf("%v is %s, want %s (%v)", c.set.Ranges(), b, c.want, err)
		}
	}
}
