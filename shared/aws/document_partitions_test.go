package aws

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"rollout/shared/document"
)

// The partition of a key is part of the table's format and must not change.
func TestPartitionsOfKeys(t *testing.T) {
	t.Parallel()
	p := partitions{listed: []string{"run", "beat"}, spread: spread}
	for key, want := range map[string]string{
		"run/01J":        "run/",
		"beat/w1":        "beat/",
		"run":            "0a",
		"control/01J":    "06",
		"shard/ab-01J-7": "shard-31",
		"shard":          "0b",
		"running/x":      "33",
	} {
		if got := p.partitionOf(key); got != want {
			t.Errorf("partitionOf(%s) = %q, want %q", key, got, want)
		}
	}
	p.prefix = "x-"
	if got := p.partitionOf("run/1"); got != "x-run/" {
		t.Errorf("with a prefix: partitionOf(run/1) = %q, want x-run/", got)
	}
}

func TestShardsAreSpreadEvenly(t *testing.T) {
	t.Parallel()
	p, counts := partitions{spread: spread}, map[string]int{}
	const keys = 64_000
	for n := range keys {
		counts[p.partitionOf(fmt.Sprintf("shard/01JABCDEF-%d", n))]++
	}
	for name, n := range counts {
		if n < keys/spread/2 || n > keys/spread*2 {
			t.Errorf("partition %s has %d of %d keys", name, n, keys)
		}
	}
	if len(counts) != spread {
		t.Errorf("%d partitions have keys, want %d", len(counts), spread)
	}
}

func TestPartitionsForPrefixIncludeThoseOfItsKeys(t *testing.T) {
	t.Parallel()
	p := partitions{listed: []string{"run", "r", "beat"}, spread: spread}
	key := rapid.OneOf(rapid.StringMatching(`(run|r|beat|shard)/[a-z]{0,3}`), rapid.StringMatching(`[!-~]{1,8}`))
	rapid.Check(t, func(r *rapid.T) {
		k := key.Draw(r, "key")
		prefix := k[:rapid.IntRange(0, len(k)).Draw(r, "length")]
		if names := p.partitionsFor(prefix); !slices.Contains(names, p.partitionOf(k)) {
			r.Fatalf("%q is in %q, but partitionsFor(%q) = %q", k, p.partitionOf(k), prefix, names)
		}
	})
	if names := p.partitionsFor("run/"); len(names) != 1 {
		t.Errorf("runs are listed from %q", names)
	}
	if names := p.partitionsFor("shard/ab"); len(names) != spread {
		t.Errorf("shards are listed from %q", names)
	}
}

// A document that is missing from an incomplete page must not be skipped.
func TestMergeStopsAtEndOfIncompletePages(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(r *rapid.T) {
		var want []string
		var pages []page
		for range rapid.IntRange(0, 5).Draw(r, "partitions") {
			all := rapid.SliceOfNDistinct(rapid.IntRange(0, 1<<30), 0, 8, rapid.ID).Draw(r, "keys")
			slices.Sort(all)
			p := page{complete: true}
			for _, k := range all {
				key := fmt.Sprintf("%010d.%d", k, len(pages))
				want = append(want, key)
				p.docs = append(p.docs, document.Doc{Key: key})
			}
			if len(all) > 1 && rapid.Bool().Draw(r, "cut short") {
				p = page{docs: p.docs[:rapid.IntRange(1, len(all)-1).Draw(r, "length")]}
			}
			pages = append(pages, p)
		}
		slices.Sort(want)
		limit := rapid.IntRange(1, 50).Draw(r, "limit")
		got := merge(pages, limit)
		if len(got) > limit || len(got) == 0 && len(want) > 0 {
			r.Fatalf("%d documents, the limit is %d, there are %d", len(got), limit, len(want))
		}
		for i, d := range got {
			if d.Key != want[i] {
				r.Fatalf("document %d is %s, want %s", i, d.Key, want[i])
			}
		}
	})
}
