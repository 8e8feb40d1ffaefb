package bucket

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"rollout/shared/blob"
)

func TestWalkOfFolderLargerThanBatchIsOrdered(t *testing.T) {
	t.Parallel()
	b, err := Open(t.TempDir(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	var want []string
	for i := range 40 {
		key := fmt.Sprintf("many/%02d", i)
		if i%5 == 0 {
			key += "/below"
		}
		want = append(want, key)
		path := filepath.Join(b.Dir(), key)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, batch := range []int{1, 2, 3, 7, 39, 40, 41, walkBatch} {
		for _, after := range []string{"", "many/17", "many/20", "many/20/below", "many/39"} {
			var got []string
			err := b.walk(t.Context(), walkOptions{prefix: "many/", after: after, batch: batch}, func(info blob.Info) error {
				got = append(got, info.Key)
				return nil
			})
			rest := slices.DeleteFunc(slices.Clone(want), func(key string) bool { return key <= after })
			if err != nil || !slices.Equal(got, rest) {
				t.Errorf("batches of %d after %q: %q, %v, want %q", batch, after, got, err, rest)
			}
		}
	}
}

func TestEntriesThatAreNotObjectsAreListedWithTheReason(t *testing.T) {
	t.Parallel()
	b, err := Open(t.TempDir(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	folder := filepath.Join(b.Dir(), "prompts")
	if err := os.MkdirAll(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"a.jsonl", ".hidden.jsonl"} {
		if err := os.WriteFile(filepath.Join(folder, name), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"b.jsonl", "c.jsonl", ".d.jsonl"} {
		if err := os.Symlink("a.jsonl", filepath.Join(folder, name)); err != nil {
			t.Fatal(err)
		}
	}
	for limit, want := range map[int][]string{10: {"prompts/b.jsonl", "prompts/c.jsonl"}, 1: {"prompts/b.jsonl"}} {
		got, err := b.ListSkipped(t.Context(), "prompts/", limit)
		var keys []string
		for _, s := range got {
			keys = append(keys, s.Key)
			if !strings.Contains(s.Why.Error(), "does not follow symbolic links") {
				t.Errorf("%s: %v", s.Key, s.Why)
			}
		}
		if err != nil || !slices.Equal(keys, want) {
			t.Errorf("limit %d: %q, %v, want %q", limit, keys, err, want)
		}
	}
}
