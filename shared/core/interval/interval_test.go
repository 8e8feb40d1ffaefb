package interval

import (
	"encoding/json"
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
	if s.Len() != len(twin) {
		t.Fatalf("Len = %d, twin %d", s.Len(), len(twin))
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
	}
	for i, r := range s.Ranges() {
		if r.Len() <= 0 || i > 0 && s.Ranges()[i-1].Hi >= r.Lo {
			t.Fatalf("the ranges %v overlap or touch", s.Ranges())
		}
	}
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
