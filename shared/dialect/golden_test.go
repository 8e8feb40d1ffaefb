package dialect_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"rollout/shared/config"
	"rollout/shared/core/identity"
	"rollout/shared/dialect"
	"rollout/shared/fault"
)

var update = flag.Bool("update", false, "write the golden files")

func ptr[T any](v T) *T { return &v }

// run returns the model and the params of the run of the golden rows.
func run() (dialect.Model, config.Sampling) {
	const uri = "hf://Qwen/Qwen2.5-0.5B"
	s := config.Sampling{Temperature: ptr(0.7), TopP: ptr(1.0), TopK: ptr(-1), MaxTokens: ptr(256),
		Stop: []string{"\n\n", "\u2028"}, Logprobs: ptr(2)}
	return dialect.Model{URI: uri, ID: identity.Model(uri, "main"), Params: s.Canonical()}, s
}

// answers returns n answers of an engine.
func answers(n int) []dialect.Answer {
	all := []dialect.Answer{
		{Text: "A\u2028B\u2029C\u0085D\nE \"F\" \xff", FinishReason: "stop",
			Usage: dialect.Usage{PromptTokens: 3, CompletionTokens: 7}},
		{FinishReason: "tool_calls", Reasoning: "think\n", ToolCalls: json.RawMessage("[ {\"id\": \"c\"}\n]"),
			Logprobs: json.RawMessage(`{"content": [1.50]}`),
			Usage:    dialect.Usage{PromptTokens: 3, CompletionTokens: 2}},
		{Text: "cut", FinishReason: "length", ToolCalls: json.RawMessage("{broken"),
			Usage: dialect.Usage{PromptTokens: 3, CompletionTokens: 1}},
	}
	out := make([]dialect.Answer, n)
	for i := range out {
		out[i] = all[i%len(all)]
	}
	return out
}

// render returns everything that the package derives from the lines of a file.
func render(d dialect.Name, file []byte) []byte {
	var b bytes.Buffer
	m, s := run()
	for i, line := range bytes.Split(bytes.TrimSpace(file), []byte("\n")) {
		place := dialect.Place{Item: uint64(i), File: "prompts/日本 語.jsonl", Line: uint64(i + 1)}
		it, err := dialect.Parse(d, line)
		fmt.Fprintf(&b, "line   %s\n", line)
		if err != nil {
			fmt.Fprintf(&b, "error  %s\n", dialect.AppendError(nil, d, it.Failure("", place, fault.ClassOf(err), err.Error())))
			continue
		}
		id := it.ItemID(m, uint64(i))
		fmt.Fprintf(&b, "item   %s\n", id)
		for k := range it.AnswerCount(s) {
			fmt.Fprintf(&b, "body   %s\n", it.Body(nil, m.URI, s, id, k))
		}
		fmt.Fprintf(&b, "output %s",
			dialect.AppendOutput(nil, it, m, dialect.Result{ID: it.RowID(id), Answers: answers(it.AnswerCount(s)),
				GeneratedAt: time.Date(2026, 1, 2, 3, 4, 5, 6_789_000, time.FixedZone("CET", 3600))}))
		fmt.Fprintf(&b, "error  %s\n",
			dialect.AppendError(nil, d, it.Failure(it.RowID(id), place, fault.Timeout, "no token for 60s")))
	}
	return b.Bytes()
}

func TestGolden(t *testing.T) {
	t.Parallel()
	for _, d := range dialect.Names() {
		t.Run(string(d), func(t *testing.T) {
			t.Parallel()
			input, err := os.ReadFile(filepath.Join("testdata", string(d)+".jsonl"))
			if err != nil {
				t.Fatal(err)
			}
			if got := dialect.Detect(input); got != d {
				t.Errorf("detected as %s", got)
			}
			golden := filepath.Join("testdata", string(d)+".golden")
			got := render(d, input)
			if *update {
				if err := os.WriteFile(golden, got, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), string(got)); diff != "" {
				t.Errorf("run with -update if the change is intended (-want +got):\n%s", diff)
			}
		})
	}
}
