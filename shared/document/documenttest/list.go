package documenttest

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"pgregory.net/rapid"

	"rollout/shared/document"
)

func testListOrder(t *testing.T, f *fixture) {
	keys := []string{"a", "a!", "a-b", "a/", "a/b", "a/b/c", "a0", "aB", "a_", "aa", "ab", "a~", "B", "b", "~"}
	for _, key := range keys {
		f.create(t, key, "value of "+key)
	}
	for _, c := range []struct {
		prefix, after string
		limit         int
		want          string
	}{
		{"", "", 100, "B a a! a-b a/ a/b a/b/c a0 aB a_ aa ab a~ b ~"},
		{"", "", 3, "B a a!"},
		{"a/", "", 100, "a/ a/b a/b/c"},
		{"a/", "a/", 100, "a/b a/b/c"},
		{"a/", "a/a", 100, "a/b a/b/c"},
		{"a/", "a/b/c", 100, ""},
		{"a/", "Z", 1, "a/"},
		{"a/", "b", 100, ""},
		{"a~", "", 100, "a~"},
		{"a~", "a~", 100, ""},
		{"~", "", 100, "~"},
		{"absent", "", 100, ""},
		{"a_", "", 100, "a_"},
		{"%", "", 100, ""},
	} {
		docs, err := f.other.List(t.Context(), c.prefix, c.after, c.limit)
		if got := strings.Join(keysOf(docs), " "); err != nil || got != c.want {
			t.Errorf("list prefix %q after %q limit %d: got %q, %v, want %q", c.prefix, c.after, c.limit, got, err, c.want)
		}
		for _, d := range docs {
			if string(d.Value) != "value of "+d.Key || d.Revision == "" {
				t.Errorf("list has %+v", d)
			}
		}
	}
}

func testPaging(t *testing.T, f *fixture) {
	var want []string
	for i := range 37 {
		want = append(want, fmt.Sprintf("page/%03d", i))
	}
	f.createAll(t.Context(), t, append([]string{"page", "page0"}, want...))
	for _, limit := range []int{1, 10, 37, document.MaxPage} {
		var got []string
		for after := ""; ; {
			page, err := f.List(t.Context(), "page/", after, limit)
			if err != nil {
				t.Fatal(err)
			}
			if len(page) > limit {
				t.Fatalf("a page has %d documents, want at most %d", len(page), limit)
			}
			if len(page) == 0 {
				break
			}
			got = append(got, keysOf(page)...)
			after = page[len(page)-1].Key
		}
		if !slices.Equal(got, want) {
			t.Errorf("pages of %d: got %v, want %v", limit, got, want)
		}
	}
	var all []string
	for d, err := range document.All(t.Context(), f, "page/") {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, d.Key)
	}
	if !slices.Equal(all, want) {
		t.Errorf("All: got %v, want %v", all, want)
	}
}

// testListModel compares List with a sorted slice, over all bytes that keys may
// contain.
func testListModel(t *testing.T, f *fixture) {
	var round atomic.Int64
	some := rapid.OneOf(rapid.StringMatching(`[!-~]{1,6}`), rapid.StringMatching(`[!/a~]{1,4}`))
	rapid.Check(t, func(r *rapid.T) {
		space := fmt.Sprintf("%d:", round.Add(1))
		var keys []string
		for _, key := range rapid.SliceOfNDistinct(some, 1, 12, rapid.ID).Draw(r, "keys") {
			keys = append(keys, space+key)
		}
		f.createAll(t.Context(), r, keys)
		slices.SortFunc(keys, cmp.Compare[string])
		prefix := space + rapid.OneOf(rapid.Just(""), some).Draw(r, "prefix")
		after := rapid.OneOf(rapid.Just(""), rapid.Just(prefix), rapid.SampledFrom(keys)).Draw(r, "after")
		limit := rapid.IntRange(1, 14).Draw(r, "limit")
		var want []string
		for _, key := range keys {
			if strings.HasPrefix(key, prefix) && key > after && len(want) < limit {
				want = append(want, key)
			}
		}
		docs, err := f.List(t.Context(), prefix, after, limit)
		if err != nil {
			r.Fatalf("list: %v", err)
		}
		if got := keysOf(docs); !slices.Equal(got, want) {
			r.Fatalf("list prefix %q after %q limit %d of %q: got %q, want %q", prefix, after, limit, keys, got, want)
		}
	})
}

// createAll creates documents concurrently, so that stores can group the writes.
func (f *fixture) createAll(ctx context.Context, t rapid.TB, keys []string) {
	t.Helper()
	errs := make([]error, len(keys))
	var done sync.WaitGroup
	for i, key := range keys {
		done.Go(func() { _, errs[i] = f.Create(ctx, key, []byte(key)) })
	}
	done.Wait()
	for i, err := range errs {
		if err != nil {
			t.Fatalf("create %s: %v", keys[i], err)
		}
	}
}
