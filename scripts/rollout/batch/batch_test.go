package batch_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"rollout/scripts/rollout/batch"
	"rollout/shared/fault"
)

func TestFindInputsReturnsSortedMatches(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, name := range []string{"b.jsonl", "a.jsonl.gz", "sub/c.jsonl", "notes.txt"} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	at := func(names ...string) (paths []string) {
		for _, n := range names {
			paths = append(paths, filepath.Join(dir, n))
		}
		return paths
	}
	for _, c := range []struct {
		glob    string
		want    []string
		wantErr string // part of the error; "" expects success
	}{
		{filepath.Join(dir, "*.jsonl*"), at("a.jsonl.gz", "b.jsonl"), ""},
		{filepath.Join(dir, "**/[b-c].jsonl"), at("b.jsonl", "sub/c.jsonl"), ""},
		{filepath.Join(dir, "**/[b-d]*.jsonl"), nil, "which the batch writes"},
		{filepath.Join(dir, "out/*.jsonl"), nil, "which the batch writes"},
		{filepath.Join(dir, "*"), nil, "not a prompts file by its name (end its name in .jsonl"},
		{filepath.Join(dir, "x*.jsonl"), nil, "correct the pattern"},
		{"no-such-folder/*.jsonl", nil, "relative paths are relative to /"},
		{filepath.Join(dir, "[.jsonl"), nil, "syntax error in pattern"},
	} {
		got, err := batch.FindInputs(c.glob, filepath.Join(dir, "out"))
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", c.glob, got, c.want)
		}
		switch {
		case (err != nil) != (c.wantErr != ""),
			err != nil && (!fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), c.wantErr)):
			t.Errorf("%s: %v, want %q", c.glob, err, c.wantErr)
		}
	}
}

func TestResolveRunIDReadsTheOutputFolder(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "not", "there", "yet")
	first, err := batch.ResolveRunID(dir, "")
	if err != nil || !first.Valid() {
		t.Fatal(first, err)
	}
	if again, err := batch.ResolveRunID(dir, ""); err != nil || again != first {
		t.Errorf("a second start continues %s, %v; want %s", again, err, first)
	}
	const named = "01JD2ZQ4T5W0M1X9YB7R3K8CVE"
	if got, err := batch.ResolveRunID(dir, named); err != nil || got != named {
		t.Errorf("--resume: %s, %v", got, err)
	}
	if _, err := batch.ResolveRunID(dir, "xx"); !fault.Is(err, fault.Invalid) {
		t.Errorf("--resume xx: %v", err)
	}
	if err := os.WriteFile(filepath.Join(dir, "run-id"), []byte("garbage"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err = batch.ResolveRunID(dir, "")
	if !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), "remove it") {
		t.Errorf("an invalid run-id file: %v", err)
	}
}
