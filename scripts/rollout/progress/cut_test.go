package progress

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"rollout/functions/status"
	"rollout/shared/blob"
	"rollout/shared/clock"
	"rollout/shared/core/run"
	"rollout/shared/memory"
)

func TestSummaryTellsWhereAnswersWereCut(t *testing.T) {
	t.Parallel()
	row := func(finish string, limit, prompt, completion int) string {
		return fmt.Sprintf(`{"id":"a","prompt":"p","completion":"c","finish_reason":%q,`+
			`"sampling_params":{"max_tokens":%d},"usage":{"prompt_tokens":%d,"completion_tokens":%d}}`+"\n",
			finish, limit, prompt, completion)
	}
	for name, c := range map[string]struct{ rows, want string }{
		"at the context": {row("length", 1024, 56, 200) + row("stop", 1024, 9, 9) + row("length", 1024, 16, 240),
			"289 of 500 answers were cut, the first ones at the model's context of 256 tokens " +
				"(max_tokens 1,024 was not reached): take a model with a longer context"},
		"at contexts": {row("length", 1024, 56, 200) + row("length", 512, 16, 100),
			"at the model's context (max_tokens was not reached)"},
		"at max_tokens": {row("length", 16, 56, 16) + row("length", 16, 9, 16),
			"the first ones at max_tokens 16: raise it"},
		"at both": {row("length", 16, 56, 16) + row("length", 16, 250, 6), "reached the length limit: raise max_tokens"},
		"of a row that says neither": {`{"id":"a","completion":"c","finish_reason":"length"}` + "\n",
			"reached the length limit: raise max_tokens, or the model's context"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bucket := memory.NewBucket(clock.System{})
			const key = "runs/x/completions.jsonl"
			if _, err := bucket.Put(t.Context(), key, strings.NewReader(c.rows), blob.PutOptions{}); err != nil {
				t.Fatal(err)
			}
			s := status.Status{Phase: run.Completed, Items: status.Items{Total: 500, Done: 500},
				FinishReasons: map[string]int{"length": 289, "stop": 211}, Outputs: key,
				Summary: "runs/x/summary.json"}
			var out bytes.Buffer
			err := WriteSummary(t.Context(), &out, s, bucket, ObjectPathIn("/data"))
			if err != nil || !strings.Contains(out.String(), c.want) {
				t.Errorf("%v: want %q in\n%s", err, c.want, out.String())
			}
		})
	}
}
