package batch_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"rollout/scripts/rollout/batch"
	"rollout/shared/config"
	"rollout/shared/jsonl"
)

func TestCheckFindsLinesThatTheRunWouldRefuse(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "in.jsonl")
	line := `{"custom_id":"a","url":"/v1/chat/completions","body":{"messages":[{}],"model":"gpt"}}` + "\n"
	second := strings.NewReplacer(`"gpt"`, `"m"`, `"a"`, `"b"`).Replace(line)
	if err := os.WriteFile(file, []byte(line+second), 0o600); err != nil {
		t.Fatal(err)
	}
	c := config.DefaultRun()
	c.Model.URI = "m"
	r, err := batch.Check(t.Context(), c, config.Engine{}, []string{file})
	const want = `the model "gpt", the run's model is "m"`
	if err != nil || r.Items != 2 || r.Bad != 1 || !strings.Contains(r.Warnings[0], want) {
		t.Errorf("%+v, %v", r, err)
	}
	c.Request = &config.Request{BodyModel: map[string]string{"gpt": ""}}
	if r, err = batch.Check(t.Context(), c, config.Engine{}, []string{file}); err != nil || r.Bad != 0 {
		t.Errorf("an accepted model: %+v, %v", r, err)
	}
	if err := os.WriteFile(file, []byte(`{"messages":[{"role":"user","content":"x"}]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	c.Request = &config.Request{Endpoint: "completions"}
	if r, err = batch.Check(t.Context(), c, config.Engine{}, []string{file}); err != nil || r.Bad != 1 {
		t.Errorf("messages for completions: %+v, %v", r, err)
	}
	c.Request = nil
	tensor := `{"messages":[{"role":"user","content":[{"image_embeds":"gASV"}]}]}`
	if err := os.WriteFile(file, []byte(tensor), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, allowed := range []bool{false, true} {
		r, err = batch.Check(t.Context(), c, config.Engine{Tensors: allowed}, []string{file})
		if err != nil || (r.Bad == 0) != allowed {
			t.Errorf("tensors, allowed %v: %+v, %v", allowed, r, err)
		}
	}
}

// The dialect is that of the first line of the file's head that tells one, as in the run.
func TestCheckReadsAFileWhoseFirstLineIsBadInItsDialect(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "in.jsonl")
	const line = `{"custom_id":"a","url":"/v1/chat/completions","body":{"messages":[{"role":"user","content":"x"}]}}`
	for _, first := range []string{"{}", "oops", strings.Repeat(" ", jsonl.RecognizeLen)} {
		if err := os.WriteFile(file, []byte(first+"\n"+line+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		r, err := batch.Check(t.Context(), config.DefaultRun(), config.Engine{}, []string{file})
		if err != nil || r.Dialect != "openai" || r.Items-r.Bad != 1 {
			t.Errorf("%.9q: %+v, %v", first, r, err)
		}
	}
}

// TestCheckTellsWhatIsSentAndWhatComesBack reads what a user wants to know before a run: which members of the rows are
// sent, which come back, where requests go, and what they look like.
func TestCheckTellsWhatIsSentAndWhatComesBack(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "in.jsonl")
	rows := `{"prompt":"a","id":"1","temperature":0.5,"tag":"x"}
{"messages":[{"role":"user","content":"b"}],"id":"2"}

{"prompt":"c","id":"1"}
{"prompt":"d","id":1}
{"prompt":7}
`
	if err := os.WriteFile(file, []byte(rows), 0o600); err != nil {
		t.Fatal(err)
	}
	c := config.DefaultRun()
	c.Model.URI = "m"
	c.Sampling.MaxTokens = new(int)
	*c.Sampling.MaxTokens = 9
	r, err := batch.Check(t.Context(), c, config.Engine{Request: config.Request{Omit: []string{"seed"}}}, []string{file})
	if err != nil || r.Items != 5 || r.Bad != 2 || r.Duplicates != 1 || len(r.Requests) != 3 {
		t.Fatalf("%+v, %v", r, err)
	}
	if r.Endpoints["/completions"] != 2 || r.Endpoints["/chat/completions"] != 1 || r.Sent["temperature"] != 1 ||
		r.Sent["max_tokens"] != 3 || r.Sent["seed"] != 0 || r.Sent["tag"] != 0 || r.Returned["tag"] != 1 {
		t.Errorf("%+v", r)
	}
	if got := r.Requests[0]; got.ID != "1" || got.Line != 1 || got.Path != "/completions" ||
		string(got.Body) != `{"model":"m","prompt":"a","temperature":0.5,"max_tokens":9}` {
		t.Errorf("the first request is %+v with %s", got, got.Body)
	}
	if !strings.Contains(strings.Join(r.Warnings, "\n"), `in.jsonl:4: the id "1" is that of an earlier line`) {
		t.Errorf("the warnings are %q", r.Warnings)
	}
}
