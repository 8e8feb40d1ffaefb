package diagnosis_test

import (
	"fmt"
	"strings"
	"testing"

	"rollout/functions/diagnosis"
	"rollout/shared/core/identity"
	"rollout/shared/core/run"
	"rollout/shared/core/shard"
	"rollout/shared/fault"
	"rollout/shared/host/hosttest"
	"rollout/shared/input"
	"rollout/shared/record"
	"rollout/shared/result"
)

// listed renders a page of items, one a line: index, id, state, class, finish reason, preview.
func listed(p diagnosis.ItemPage) string {
	var b strings.Builder
	for _, it := range p.Items {
		fmt.Fprintf(&b, "%d %s %s %s/%s %q\n", it.Item, it.ID, it.State, it.Class, it.FinishReason, it.Preview)
	}
	return b.String()
}

func TestItemsAreListedInInputOrder(t *testing.T) {
	t.Parallel()
	const (
		a    = "0 a done /length \"first\"\n"
		b    = "1 b failed timeout/ \"too slow\"\n"
		open = "2 5 in_hand /length \"third\"\n3  waiting / \"\"\n4  waiting / \"\"\n5  waiting / \"\"\n"

		answered = "2 5 done /length \"third\"\n"
		left     = "canceled/ \"the run ended first\"\n"
	)
	failed := diagnosis.ItemFilter{Class: fault.Timeout}
	length := diagnosis.ItemFilter{FinishReason: "length"}
	for name, c := range map[string]struct {
		ended  bool
		filter diagnosis.ItemFilter
		want   string
	}{
		"of an open run":                 {false, diagnosis.ItemFilter{}, a + b + open},
		"from an index":                  {false, diagnosis.ItemFilter{From: 2}, open},
		"behind the last":                {false, diagnosis.ItemFilter{From: 6}, ""},
		"of a class":                     {false, failed, b},
		"of a class that none has":       {false, diagnosis.ItemFilter{Class: fault.Poison}, ""},
		"with a finish reason":           {false, length, a + "2 5 in_hand /length \"third\"\n"},
		"with a reason that none has":    {false, diagnosis.ItemFilter{FinishReason: "tool_calls"}, ""},
		"with a text in their ids":       {false, diagnosis.ItemFilter{Text: "b"}, b},
		"of an ended run":                {true, diagnosis.ItemFilter{}, a + b + answered + leftItems(left)},
		"of a class, of an ended run":    {true, failed, b},
		"of an end, of an ended run":     {true, diagnosis.ItemFilter{Class: fault.CanceledItem}, leftItems(left)},
		"with a reason, of an ended run": {true, length, a + answered},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newShown(t)
			counts := map[string]int{"timeout": 1}
			if c.ended {
				f.freed()
				counts["canceled"] = 3
			}
			f.counts(counts)
			c.filter.Bytes = 64 << 10
			for _, limit := range []int{100, 1} { // whole, and item by item
				c.filter.Limit = limit
				got, filter := "", c.filter
				for pages := 0; ; pages++ {
					p, err := f.Items(t.Context(), runA, filter)
					if err != nil || p.Of != 6 || pages > 10 {
						t.Fatalf("page %d of %d items: %v", pages, p.Of, err)
					}
					if got += listed(p); p.Next == nil {
						break
					}
					filter.From = *p.Next
				}
				if got != c.want {
					t.Errorf("%d a page:\n%s\nwant\n%s", limit, got, c.want)
				}
			}
		})
	}
}

// leftItems are the items that the end of the run of freed left without an answer.
func leftItems(what string) (out string) {
	for n := 3; n < 6; n++ {
		out += fmt.Sprintf("%d  failed %s", n, what)
	}
	return out
}

func TestAPageOfItemsIsBoundedByItsBytes(t *testing.T) {
	t.Parallel()
	f := newShown(t)
	p, err := f.Items(t.Context(), runA, diagnosis.ItemFilter{Limit: 100, Bytes: 300})
	if err != nil || len(p.Items) == 0 || len(p.Items) > 3 || p.Next == nil || *p.Next != uint64(len(p.Items)) ||
		p.Scanned != *p.Next {
		t.Errorf("%d items, %d scanned, next %v, %v", len(p.Items), p.Scanned, p.Next, err)
	}
}

func TestFailuresHaveSamples(t *testing.T) {
	t.Parallel()
	for name, ended := range map[string]bool{"of an open run": false, "of an ended run": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newShown(t)
			counts := map[string]int{"timeout": 1}
			want := "timeout 1: 1 b too slow\n"
			if ended {
				f.freed()
				counts["canceled"] = 3
				want = "canceled 3: 3  the run ended first, 4  the run ended first, 5  the run ended first\n" + want
			}
			f.counts(counts)
			_, classes, err := f.Failures(t.Context(), runA)
			if err != nil {
				t.Fatal(err)
			}
			got := ""
			for _, c := range classes {
				var samples []string
				for _, s := range c.Samples {
					samples = append(samples, fmt.Sprint(s.Item, " ", s.ID, " ", s.Message))
				}
				got += fmt.Sprintf("%s %d: %s\n", c.Class, c.Count, strings.Join(samples, ", "))
			}
			if got != want {
				t.Errorf("got\n%s\nwant\n%s", got, want)
			}
		})
	}
}

// counts sets how many items of the run have failed, by class.
func (f fixture) counts(byClass map[string]int) {
	f.t.Helper()
	s := hosttest.Load[run.State](f.t, f.ports, record.CoordinatorKey(runA))
	s.Counts.ByClass, s.Counts.Failed = byClass, 0
	for _, n := range byClass {
		s.Counts.Failed += n
	}
	f.save(record.CoordinatorKey(runA), s)
	d := hosttest.Load[shard.Doc](f.t, f.ports, identity.ShardKey(runA, 0))
	d.Counts.ByClass = map[string]int{"timeout": 1}
	f.save(identity.ShardKey(runA, 0), d)
}

// A shard whose rows are too long for a list still has its failures in it, and the others count as
// unread.
func TestFailuresOfAShardWithLongRowsAreListed(t *testing.T) {
	t.Parallel()
	for name, indexed := range map[string]bool{"rows alone": false, "with an index": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newShown(t)
			f.counts(map[string]int{"timeout": 1})
			d := hosttest.Load[shard.Doc](t, f.ports, identity.ShardKey(runA, 0))
			b, err := input.ReadObject(t.Context(), f.ports.Blobs, "work/result", 1<<20)
			if err != nil {
				t.Fatal(err)
			}
			long := []byte(`{"id":"a","completion":"` + strings.Repeat("x", 17<<20) + "\"}\n")
			rows := []result.Row{{Item: 0, Bytes: long}, {Item: 1, Class: fault.Timeout, Bytes: b[d.OutputLen:]}}
			encode := result.Append
			if indexed {
				encode = result.AppendIndexed
				m := hosttest.Load[record.Manifest](t, f.ports, record.ManifestKey(runA))
				m.Config.Dedupe.Enabled = true
				f.save(record.ManifestKey(runA), m)
			}
			b, d.OutputLen = encode(nil, rows)
			d.Result = &shard.Ref{Key: "work/long", Length: int64(len(b)), Digest: identity.Content(b).String()}
			hosttest.Put(t, f.ports, "work/long", string(b))
			f.save(identity.ShardKey(runA, 0), d)
			for _, c := range []struct {
				filter diagnosis.ItemFilter
				want   string
				unread uint64
			}{
				{diagnosis.ItemFilter{}, "0 a done / \"\"\n1 b failed timeout/ \"too slow\"\n", 1},
				{diagnosis.ItemFilter{Class: fault.Timeout}, "1 b failed timeout/ \"too slow\"\n", 0},
				{diagnosis.ItemFilter{FinishReason: "length"}, "", 1},
			} {
				c.filter.Limit, c.filter.Bytes = 2, 64<<10
				p, err := f.Items(t.Context(), runA, c.filter)
				if got := listed(p); err != nil || !strings.HasPrefix(got, c.want) || p.Unread != c.unread {
					t.Errorf("%+v: %s, %d unread, %v", c.filter, got, p.Unread, err)
				}
			}
		})
	}
}

// Samples that were found are not looked for again, until something else has failed.
func TestFailuresAreLookedForOnce(t *testing.T) {
	t.Parallel()
	f := newShown(t)
	look := func(byClass map[string]int, want int) {
		t.Helper()
		f.counts(byClass)
		_, classes, err := f.Failures(t.Context(), runA)
		got := 0
		for _, c := range classes {
			got += len(c.Samples)
		}
		if err != nil || len(classes) != len(byClass) || got != want {
			t.Errorf("%v: %+v, %v", byClass, classes, err)
		}
	}
	look(map[string]int{"timeout": 1}, 1)
	result := hosttest.Load[shard.Doc](t, f.ports, identity.ShardKey(runA, 0))
	gone := result
	gone.Result = &shard.Ref{Key: "work/gone", Length: 10}
	f.save(identity.ShardKey(runA, 0), gone)
	look(map[string]int{"timeout": 1}, 1)
	look(map[string]int{"timeout": 1, "poison": 1}, 1)
	f.save(identity.ShardKey(runA, 0), result)
	look(map[string]int{"timeout": 2}, 1)
}
