package gcp

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"rollout/shared/document"
	"rollout/shared/fault"
)

// The name of a document is part of the database's format and must not change.
func TestNamesOfKeys(t *testing.T) {
	t.Parallel()
	m := names{listed: []string{"run", "beat"}, spread: spread}
	for key, want := range map[string]string{
		"run/01J":        `lrun."01J`,
		"beat/w.1":       `lbeat."w.!1`,
		"run":            `h0arun`,
		"control/01J":    `h06control."01J`,
		"shard/ab-01J-7": `h31shard."ab-01J-7`,
		"running/x":      `h33running."x`,
		".":              `h31.!`,
	} {
		if got := m.of(key); got != want {
			t.Errorf("the name of %s is %s, want %s", key, got, want)
		}
		if back, err := m.key(want); err != nil || back != key {
			t.Errorf("the key of %s is %q, %v, want %s", want, back, err, key)
		}
	}
	for _, name := range []string{"", "l", "h", "h00", "x", `lshard."1`, "h05run", "l.", "h0arun/"} {
		if key, err := m.key(name); !fault.Is(err, fault.Corrupt) {
			t.Errorf("the key of %q is %q, %v, want Corrupt", name, key, err)
		}
	}
}

// anyKey draws keys of all characters that the port allows, often the escaped ones.
var anyKey = rapid.OneOf(rapid.StringMatching(`[!-~]{1,8}`), rapid.StringMatching(`[./!"a~]{1,5}`),
	rapid.StringMatching(`(run|beat|shard)/[./!a-z]{0,4}`))

func TestEscapesKeepOrderAndPrefixes(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(r *rapid.T) {
		a, b := anyKey.Draw(r, "a"), anyKey.Draw(r, "b")
		x, y := escape.Replace(a), escape.Replace(b)
		if cmp.Compare(a, b) != cmp.Compare(x, y) {
			r.Fatalf("%q and %q are in another order than their escapes %q and %q", a, b, x, y)
		}
		if strings.HasPrefix(a, b) != strings.HasPrefix(x, y) {
			r.Fatalf("%q begins with %q: %t, their escapes: %t", a, b, strings.HasPrefix(a, b), strings.HasPrefix(x, y))
		}
		if unescape.Replace(x) != a || strings.Contains(x, "/") {
			r.Fatalf("%q is escaped as %q, which reads back as %q", a, x, unescape.Replace(x))
		}
	})
}

// Each document whose key has a prefix is between the edges of exactly one range of
// names, and no other document is.
func TestRangesOfAPrefixHoldItsDocuments(t *testing.T) {
	t.Parallel()
	m := names{listed: []string{"run", "beat"}, spread: 5}
	rapid.Check(t, func(r *rapid.T) {
		key := anyKey.Draw(r, "key")
		prefix := rapid.OneOf(rapid.Just(key[:rapid.IntRange(0, len(key)).Draw(r, "length")]), anyKey).Draw(r, "prefix")
		from, to := document.KeyRange(prefix)
		name, in := m.of(key), 0
		for _, begin := range m.ranges(prefix) {
			if begin+escape.Replace(from) <= name && name < begin+escape.Replace(to) {
				in++
			}
		}
		if has := strings.HasPrefix(key, prefix); has != (in == 1) || in > 1 {
			r.Fatalf("%d ranges of the prefix %q have the name of %q", in, prefix, key)
		}
	})
}

func TestLongestNameFitsFirestore(t *testing.T) {
	t.Parallel()
	m := names{spread: 256}
	for _, key := range []string{strings.Repeat(".", document.MaxKey), strings.Repeat("/", document.MaxKey)} {
		if name := m.of(key); len(name) > 1500 {
			t.Errorf("the name of a key of %d bytes has %d bytes, Firestore's limit is 1500", len(key), len(name))
		}
	}
}

func TestUnlistedDocumentsAreSpreadEvenly(t *testing.T) {
	t.Parallel()
	m, counts := names{listed: ListedDocuments(), spread: spread}, map[string]int{}
	const keys = 64_000
	for n := range keys {
		counts[m.of(fmt.Sprintf("shard/01JABCDEF-%d", n))[:len(hashed(0))]]++
	}
	for begin, n := range counts {
		if n < keys/spread/2 || n > keys/spread*2 {
			t.Errorf("the range %s has %d of %d documents", begin, n, keys)
		}
	}
	if len(counts) != spread {
		t.Errorf("%d ranges have documents, want %d", len(counts), spread)
	}
}

// A page that ends early bounds what is known of its range, so later keys of other
// ranges are left out.
func TestMergeStopsWhereARangeIsUnknown(t *testing.T) {
	t.Parallel()
	docs := func(keys ...string) (all []document.Doc) {
		for _, key := range keys {
			all = append(all, document.Doc{Key: key})
		}
		return all
	}
	got := merge([]page{{docs("a", "d", "z"), true}, {docs("b", "e"), false}, {docs("c", "f"), false}}, 9)
	var keys []string
	for _, d := range got {
		keys = append(keys, d.Key)
	}
	if want := []string{"a", "b", "c", "d", "e"}; !slices.Equal(keys, want) {
		t.Errorf("merged %q, want %q", keys, want)
	}
	if got := merge([]page{{nil, true}, {docs("b", "e"), true}}, 1); len(got) != 1 || got[0].Key != "b" {
		t.Errorf("merged %v, want b alone", got)
	}
}
