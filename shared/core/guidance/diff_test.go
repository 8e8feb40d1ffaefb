package guidance_test

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"rollout/shared/core/guidance"
)

func TestDiff(t *testing.T) {
	t.Parallel()
	const look, date, cable = "Look at every photo twice.", "A photo needs a date.", "Check the cable at its clamps."
	for name, c := range map[string]struct {
		a, b []string
		want []guidance.Change
	}{
		"same":    {[]string{look, date}, []string{look, date}, nil},
		"empty":   {nil, nil, nil},
		"moved":   {[]string{look, date}, []string{date, look}, nil},
		"added":   {[]string{look}, []string{look, date}, []guidance.Change{{Kind: guidance.Add, To: 2, New: date}}},
		"dropped": {[]string{look, date}, []string{date}, []guidance.Change{{Kind: guidance.Drop, From: 1, Old: look}}},
		"replaced": {[]string{look}, []string{cable}, []guidance.Change{
			{Kind: guidance.Drop, From: 1, Old: look}, {Kind: guidance.Add, To: 1, New: cable}}},
		"rewritten": {[]string{date, look}, []string{"Look at each photo twice."},
			[]guidance.Change{{Kind: guidance.Drop, From: 1, Old: date},
				{Kind: guidance.Rewrite, From: 2, To: 1, Old: look, New: "Look at each photo twice."}}},
		"other case": {[]string{date}, []string{"A PHOTO needs a date!"},
			[]guidance.Change{{Kind: guidance.Rewrite, From: 1, To: 1, Old: date, New: "A PHOTO needs a date!"}}},
		"merged": {[]string{look, cable, date}, []string{look + " It needs a date.", cable},
			[]guidance.Change{{Kind: guidance.Rewrite, From: 1, To: 1, Old: look, New: look + " It needs a date."},
				{Kind: guidance.Drop, From: 3, Old: date}}},
		"the closest pair": {[]string{"a b c d", "a b c x"}, []string{"a b c y z", "a b c x y z"},
			[]guidance.Change{{Kind: guidance.Rewrite, From: 1, To: 1, Old: "a b c d", New: "a b c y z"},
				{Kind: guidance.Rewrite, From: 2, To: 2, Old: "a b c x", New: "a b c x y z"}}},
		"half of the words": {[]string{"a b c d"}, []string{"x b y d"},
			[]guidance.Change{{Kind: guidance.Rewrite, From: 1, To: 1, Old: "a b c d", New: "x b y d"}}},
		"fewer words": {[]string{"a b c d e"}, []string{"x b y d z"},
			[]guidance.Change{{Kind: guidance.Drop, From: 1, Old: "a b c d e"},
				{Kind: guidance.Add, To: 1, New: "x b y d z"}}},
		"the closest of two": {[]string{"a b c d"}, []string{"a b x y", "a b c d e"},
			[]guidance.Change{{Kind: guidance.Rewrite, From: 1, To: 2, Old: "a b c d", New: "a b c d e"},
				{Kind: guidance.Add, To: 1, New: "a b x y"}}},
		"without words": {[]string{"!"}, []string{"?"},
			[]guidance.Change{{Kind: guidance.Drop, From: 1, Old: "!"}, {Kind: guidance.Add, To: 1, New: "?"}}},
	} {
		got := guidance.Diff(start(t, "", c.a...), start(t, "", c.b...))
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

// The changes, made to the first guidance, give the entries of the second.
func TestDiffExplainsEveryDifference(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		a, b := drawGuidance(t), drawGuidance(t)
		texts := func(g guidance.Guidance) (out []string) {
			for _, e := range g.Entries {
				out = append(out, e.Text)
			}
			return out
		}
		left, right := texts(a), texts(b)
		for _, c := range guidance.Diff(a, b) {
			if (c.From > 0) != (c.Kind != guidance.Add) || (c.To > 0) != (c.Kind != guidance.Drop) {
				t.Fatalf("%+v", c)
			}
			if c.From > 0 {
				if a.Entries[c.From-1].Text != c.Old {
					t.Fatalf("%+v is not about %+v", c, a.Entries[c.From-1])
				}
				left = slices.DeleteFunc(left, func(s string) bool { return s == c.Old })
			}
			if c.To > 0 {
				if b.Entries[c.To-1].Text != c.New {
					t.Fatalf("%+v is not about %+v", c, b.Entries[c.To-1])
				}
				left = append(left, c.New)
			}
		}
		slices.Sort(left)
		slices.Sort(right)
		if !slices.Equal(left, right) {
			t.Fatalf("%q, want %q", left, right)
		}
	})
}
