package blobtest

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"rollout/shared/blob"
	"rollout/shared/fault"
)

// awkward are keys that expose drivers that decode names twice, walk folders in
// the wrong order, or confuse bytes with characters.
var awkward = []string{
	"a+b", "a%2Bb", "a b", "a&b=c?", "日本 語", "my prompts", "prompts/my prompts.jsonl", "prompts/a#b", "é", "e\u0301",
	"ordering/a", "ordering/b/x", "ordering/b-x", "ordering/b.x", "ordering/b/y/z", "ordering/b0", "ordering/b!",
	"ordering/B", "ordering/b~",
	"ordering-", "ordering.x", "ordering0", "zz", "~", "*", "[a]", "{b}", "$HOME", "`id`",
	"a;b", `quo"te`, "apos'trophe", "back\\slash", "-rf", "a..b", "dot.",
}

func testList(t *testing.T, open func(t *testing.T) blob.Store, _ Features) {
	t.Run("lists keys in byte order at every page size", func(t *testing.T) {
		t.Parallel()
		s := open(t)
		for _, key := range awkward {
			put(t, s, key, key)
		}
		want := slices.Sorted(slices.Values(awkward))
		for _, limit := range []int{1, 2, 3, 7, len(want) - 1, len(want), len(want) + 1, blob.MaxList} {
			wantPages(t, s, "", limit, want)
		}
	})
	t.Run("continues after any string, also after one that is not a key", func(t *testing.T) {
		t.Parallel()
		s := open(t)
		for _, key := range awkward {
			put(t, s, key, key)
		}
		all := slices.Sorted(slices.Values(awkward))
		afters := slices.Concat(awkward, []string{
			"ordering", "ordering/", "ordering/b", "ordering/b/", "ordering/b/y", "ordering/b/y/z/q", "ordering/b-",
			"\x00", "\xff", "zzz", "/", "prompts0",
		})
		for _, after := range afters {
			want := slices.DeleteFunc(slices.Clone(all), func(k string) bool { return k <= after })
			page, err := s.List(t.Context(), "", after, 1000)
			if got := names(page); err != nil || !slices.Equal(got, want) {
				t.Errorf("after %q: got %q, %v, want %q", after, got, err, want)
			}
		}
	})
	t.Run("lists only keys with the prefix", func(t *testing.T) {
		t.Parallel()
		s := open(t)
		for _, key := range awkward {
			put(t, s, key, key)
		}
		all := slices.Sorted(slices.Values(awkward))
		for _, prefix := range []string{
			"", "a", "a+", "a%2B", "ordering", "ordering/", "ordering/b", "ordering/b/", "ordering/b/y/z",
			"prompts/my", "日", "absent", "absent/x", "zz/",
		} {
			var want []string
			for _, key := range all {
				if strings.HasPrefix(key, prefix) {
					want = append(want, key)
				}
			}
			wantPages(t, s, prefix, 2, want)
			wantPages(t, s, prefix, 1000, want)
		}
	})
	t.Run("lists nothing in an empty bucket", func(t *testing.T) {
		t.Parallel()
		if got := keys(t, open(t), ""); len(got) != 0 {
			t.Errorf("List = %q", got)
		}
	})
	t.Run("refuses a limit out of range", func(t *testing.T) {
		t.Parallel()
		s := open(t)
		for _, limit := range []int{0, -1, blob.MaxList + 1} {
			_, err := s.List(t.Context(), "", "", limit)
			wantKind(t, err, fault.Invalid, fmt.Sprint("limit ", limit))
		}
	})
	t.Run("pages through keys of concurrent puts", func(t *testing.T) {
		t.Parallel()
		s := open(t)
		const writers = 40
		for _, err := range race(writers, func(i int) error {
			for j := range 3 {
				key := fmt.Sprintf("many/%d/%02d", j, i)
				if _, err := s.Put(t.Context(), key, strings.NewReader(key), blob.PutOptions{CreateOnly: true}); err != nil {
					return err
				}
			}
			return nil
		}) {
			if err != nil {
				t.Error(err)
			}
		}
		var want []string
		for j := range 3 {
			for i := range writers {
				want = append(want, fmt.Sprintf("many/%d/%02d", j, i))
			}
		}
		wantPages(t, s, "many/", 11, want)
	})
}

// wantPages pages through the prefix and compares the keys.
func wantPages(t *testing.T, s blob.Store, prefix string, limit int, want []string) {
	t.Helper()
	var got []string
	after := ""
	for {
		page, err := s.List(t.Context(), prefix, after, limit)
		if err != nil {
			t.Fatalf("List(%q, after %q): %v", prefix, after, err)
		}
		if len(page) > limit {
			t.Fatalf("List(%q, limit %d) returned %d objects", prefix, limit, len(page))
		}
		got = append(got, names(page)...)
		if len(got) > len(want) {
			break
		}
		if len(page) < limit {
			break
		}
		after = page[len(page)-1].Key
	}
	if !slices.Equal(got, want) {
		t.Errorf("List(%q) in pages of %d:\n got %q\nwant %q", prefix, limit, got, want)
	}
}

func names(page []blob.Info) []string {
	var all []string
	for _, info := range page {
		all = append(all, info.Key)
	}
	return all
}
