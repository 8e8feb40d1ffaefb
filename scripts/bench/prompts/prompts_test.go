package prompts_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"rollout/scripts/bench/prompts"
)

func TestLinesAreDistinctAndValidAndHaveTheSize(t *testing.T) {
	t.Parallel()
	for _, size := range []int{300, 1200} {
		path := filepath.Join(t.TempDir(), "p.jsonl")
		if err := prompts.Write(path, 1000, size); err != nil {
			t.Fatal(err)
		}
		all, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		ids, texts := map[string]bool{}, map[string]bool{}
		for line := range bytes.Lines(all) {
			var l struct{ ID, Prompt string }
			if err := json.Unmarshal(line, &l); err != nil || len(line) != size {
				t.Fatalf("%d bytes, %v: %s", len(line), err, line)
			}
			ids[l.ID], texts[l.Prompt] = true, true
		}
		if len(ids) != 1000 || len(texts) != 1000 {
			t.Errorf("%d ids and %d prompts in 1000 lines of %d bytes", len(ids), len(texts), size)
		}
	}
}

func TestChatsAreDistinctAndValid(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "c.jsonl")
	if err := prompts.WriteChats(path, 1000, 40); err != nil {
		t.Fatal(err)
	}
	all, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	ids, texts := map[string]bool{}, map[string]bool{}
	for line := range bytes.Lines(all) {
		var l struct {
			ID        string
			Messages  []struct{ Role, Content string }
			MaxTokens int `json:"max_tokens"`
		}
		if err := json.Unmarshal(line, &l); err != nil || len(l.Messages) != 1 || l.MaxTokens != 40 {
			t.Fatalf("%v: %s", err, line)
		}
		ids[l.ID], texts[l.Messages[0].Content] = true, true
	}
	if len(ids) != 1000 || len(texts) != 1000 {
		t.Errorf("%d ids and %d texts in 1000 chats", len(ids), len(texts))
	}
}
