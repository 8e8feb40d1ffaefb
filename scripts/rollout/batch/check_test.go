package batch_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"rollout/scripts/rollout/batch"
	"rollout/shared/config"
)

func TestCheckFindsLinesThatTheRunWouldRefuse(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "in.jsonl")
	line := `{"custom_id":"a","url":"/v1/chat/completions","body":{"messages":[{}],"model":"gpt"}}` + "\n"
	if err := os.WriteFile(file, []byte(line+strings.ReplaceAll(line, `"gpt"`, `"m"`)), 0o600); err != nil {
		t.Fatal(err)
	}
	c := config.DefaultInfer()
	c.Model.URI = "m"
	r, err := batch.Check(t.Context(), c, []string{file})
	const want = `the model "gpt", the run's model is "m"`
	if err != nil || r.Items != 2 || r.Bad != 1 || !strings.Contains(r.Warnings[0], want) {
		t.Errorf("%+v, %v", r, err)
	}
	c.Request = &config.Request{BodyModel: map[string]string{"gpt": ""}}
	if r, err = batch.Check(t.Context(), c, []string{file}); err != nil || r.Bad != 0 {
		t.Errorf("an accepted model: %+v, %v", r, err)
	}
	if err := os.WriteFile(file, []byte(`{"messages":[{"role":"user","content":"x"}]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	c.Request = &config.Request{Endpoint: "completions"}
	if r, err = batch.Check(t.Context(), c, []string{file}); err != nil || r.Bad != 1 {
		t.Errorf("messages for completions: %+v, %v", r, err)
	}
}
