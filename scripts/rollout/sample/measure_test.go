package sample_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"rollout/scripts/rollout/compare"
	"rollout/scripts/rollout/sample"
	"rollout/shared/config"
	"rollout/shared/core/identity"
	"rollout/shared/core/shard"
	"rollout/shared/dialect"
	"rollout/shared/host/hosttest"
	"rollout/shared/record"
)

// measured measures a run of one shard, whose answers came that many milliseconds after its claim.
func measured(t *testing.T, d dialect.Name, attempt uint64, after ...int) sample.Estimate {
	t.Helper()
	const id identity.RunID = "01JD2ZQ4T5W0M1X9YB7R3K8CVA"
	p, claim := hosttest.New(), time.Date(2026, 3, 1, 12, 0, 0, 400_000_000, time.UTC)
	line := map[dialect.Name]string{dialect.Plain: `{"id":"%d","prompt":"p"}`,
		dialect.OpenAI: `{"custom_id":"%d","url":"/v1/chat/completions","body":{"messages":[{"role":"user","content":"p"}]}}`}
	m := dialect.NewModel("m", identity.Model("m", ""), config.Run{})
	var rows []byte
	s := sample.Sample{}
	for i, ms := range after {
		it, err := dialect.Parse(d, fmt.Appendf(nil, line[d], i))
		if err != nil {
			t.Fatal(err)
		}
		rows = dialect.AppendOutput(rows, it, m, dialect.Result{ID: it.RowID(it.ItemID(m, uint64(i))),
			GeneratedAt: claim.Add(time.Duration(ms) * time.Millisecond),
			Answers: []dialect.Answer{{Text: "a", FinishReason: "stop",
				Usage: dialect.Usage{PromptTokens: 2, CompletionTokens: 1}}}})
		s.Whole.Add(1)
		s.Sizes = append(s.Sizes, 1)
	}
	hosttest.Put(t, p, record.OutputKey(id, record.CompletionsFile), string(rows))
	hosttest.Put(t, p, record.OutputKey(id, record.ErrorsFile), "")
	hosttest.Save(t, p, identity.ShardKey(id, 0),
		shard.Doc{Run: id, State: shard.Done, Attempt: attempt, ClaimedAt: claim})
	e, err := sample.Measure(t.Context(), p, s, compare.Run{
		Manifest: record.Manifest{Run: id, Dialect: string(d)},
		Summary:  record.Summary{Run: id, Items: uint64(len(after)), Shards: 1}}, config.Engine{})
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// The time of a sample is known only from its first claim on. Whatever hides that is said instead.
func TestTheTimeOfASampleIsEstimatedOnlyFromItsFirstClaim(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		dialect dialect.Name
		attempt uint64
		after   []int
		seconds float64
		note    string
	}{
		"a pace":                {dialect.Plain, 1, []int{500, 1000, 1500, 2000}, 2, ""},
		"whole seconds":         {dialect.OpenAI, 1, []int{100, 1000, 2000, 3000}, 2.6, ""},
		"all within one second": {dialect.OpenAI, 1, []int{100, 200, 300, 400}, 0, "whole seconds"},
		"a second claim":        {dialect.Plain, 2, []int{500, 1000, 1500, 2000}, 0, "processed twice"},
		"an answer before it":   {dialect.Plain, 1, []int{-5000, 1000, 1500, 2000}, 0, "older than the first claim"},
		"too few":               {dialect.Plain, 1, []int{500, 1000, 1500}, 0, "fewer than 4"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := measured(t, c.dialect, c.attempt, c.after...)
			if e.Answered != len(c.after) || e.Tokens == nil && len(c.after) > 3 {
				t.Errorf("%+v", e)
			}
			if known := e.Seconds != nil; known != (c.note == "") || known && e.Seconds.Value != c.seconds ||
				!strings.Contains(e.SecondsNote, c.note) || known && e.SecondsNote != "" {
				t.Errorf("the time is %+v, %q", e.Seconds, e.SecondsNote)
			}
		})
	}
}
