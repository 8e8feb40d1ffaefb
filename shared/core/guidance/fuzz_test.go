package guidance_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"rollout/shared/core/guidance"
)

// A plan that is accepted is in canonical form, and leads to guidance within the limits
// or to a refusal.
func FuzzParsePlan(f *testing.F) {
	for _, seed := range []string{answer(), answer(add), "```json\n" + answer(add) + "\n```", answer(rewriteOf(1, "x")),
		answer(`{"op":"merge","entries":[1,2],"text":"y","reason":"r","evidence":["t"]}`, add),
		answer(`{"op":"drop","entries":[1,2],"reason":"r","evidence":["t"]}`),
		`{"scaffold":1}`, "{", "```", `{"a":"\ud800"}`} {
		f.Add([]byte(seed))
	}
	g := used(f)
	limits := guidance.Limits{Entries: 5, EntryBytes: 60, TotalTokens: 60, Operations: 4}
	f.Fuzz(func(t *testing.T, b []byte) {
		plan, err := guidance.ParsePlan(b, limits)
		if err != nil {
			refusalOf(t, err)
			return
		}
		encoded, err := json.Marshal(plan)
		if err != nil {
			t.Fatal(err)
		}
		if again, err := guidance.ParsePlan(encoded, limits); err != nil && len(encoded) <= guidance.MaxAnswer ||
			err == nil && !cmp.Equal(plan.Operations, again.Operations) {
			t.Fatalf("%s is parsed as %+v, %v", encoded, again, err)
		}
		next, err := g.Apply(plan, guidance.Applying{Limits: limits})
		if err != nil {
			refusalOf(t, err)
			return
		}
		if err := limits.Check(next); err != nil || len(next.Entries) == 0 {
			t.Fatalf("%v: %s", err, next.Encode())
		}
		if _, err := guidance.Decode(next.Encode()); err != nil || strings.Count(next.Text(), "\n") != 2+len(next.Entries) {
			t.Fatalf("%v: %s", err, next.Text())
		}
		guard, copied := guidance.NewCopyGuard(plan, g), false
		for _, op := range plan.Operations {
			_, found := guard.Ticket("x " + op.Text + " y")
			copied = copied || found
		}
		if copied == guard.Empty() {
			t.Fatalf("%+v: copied is %v", plan, copied)
		}
	})
}

func FuzzParseSummary(f *testing.F) {
	for _, seed := range []string{`{"summary":"a","lesson":""}`,
		"```\n{\"summary\":\"a\\n\",\"lesson\":\"b\"}\n```", "{}", "["} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := guidance.ParseSummary(b)
		if err != nil {
			refusalOf(t, err)
			return
		}
		if s.Summary == "" || len(s.Summary) > guidance.MaxSummary || len(s.Lesson) > guidance.MaxLesson ||
			strings.ContainsAny(s.Summary+s.Lesson, "\n\r\x00\x1b\u202e") {
			t.Fatalf("%+v", s)
		}
	})
}

// What Decode accepts has one encoding.
func FuzzDecode(f *testing.F) {
	f.Add(used(f).Encode())
	f.Add(later(f).Encode())
	f.Add([]byte(`{"schema":1,"mission":"m"}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		g, err := guidance.Decode(b)
		if err != nil {
			return
		}
		again, err := guidance.Decode(g.Encode())
		if err != nil || string(again.Encode()) != string(g.Encode()) || again.Text() != g.Text() {
			t.Fatalf("%v: %s", err, g.Encode())
		}
	})
}

// A passage that stands in a ticket is found there, whatever stands around it.
func FuzzCopyGuard(f *testing.F) {
	f.Add("the cable at mast 7", "today ", " hangs")
	f.Add("电缆松动必须立即处理", "现场", "了")
	f.Add("a\u0301 b c d e", "\u0301", "\u0301")
	f.Fuzz(func(t *testing.T, text, before, after string) {
		guard := guardOf(guidance.Guidance{}, text)
		if run, copied := guard.Ticket(before + " . " + text + " . " + after); copied == guard.Empty() {
			t.Fatalf("%q, %v", run, copied)
		}
	})
}
