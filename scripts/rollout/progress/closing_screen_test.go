package progress

import (
	"bytes"
	"strings"
	"testing"

	"rollout/functions/status"
	"rollout/shared/clock"
	"rollout/shared/core/run"
	"rollout/shared/memory"
)

func TestSummaryTellsHowAnswersEnded(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		finish    map[string]int
		want, not string
	}{
		{map[string]int{"stop": 100}, "", "finish"},
		{map[string]int{"none": 100}, "", "finish"},
		{map[string]int{"stop": 80, "length": 15, "tool_calls": 5}, "finish      80 stop, 15 length, 5 tool_calls\n",
			"max_tokens"},
		{map[string]int{"stop": 40, "length": 60}, "60 of 100 answers reached the length limit: raise max_tokens", "none"},
	} {
		s := status.Status{Phase: run.Completed, Items: status.Items{Total: 100, Done: 100}, FinishReasons: c.finish,
			Outputs: "runs/x/completions.jsonl"}
		var out bytes.Buffer
		err := WriteSummary(t.Context(), &out, s, memory.NewBucket(clock.System{}), ObjectPathIn("/data"))
		if err != nil || !strings.Contains(out.String(), c.want) || strings.Contains(out.String(), c.not) {
			t.Errorf("%v: %v\n%s", c.finish, err, out.String())
		}
	}
}

func TestFormatRowShowsIDsThatAreNumbers(t *testing.T) {
	t.Parallel()
	for row, want := range map[string]string{
		`{"id":7,"prompt":"a","completion":" b "}`:                                        "7  a → b",
		`{"id":"p","prompt":"a","completion":"b"}`:                                        "p  a → b",
		`{"custom_id":12,"response":{"body":{"choices":[{"message":{"content":"hi"}}]}}}`: "12  hi",
		`{"id":7}`: `{"id":7}`,
	} {
		if got := formatRow([]byte(row)); got != want {
			t.Errorf("row %s is shown as %q, want %q", row, got, want)
		}
	}
}
