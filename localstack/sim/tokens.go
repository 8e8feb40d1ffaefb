package sim

import (
	"bytes"
	"context"
	"encoding/json"

	"rollout/shared/core/identity"
	"rollout/shared/core/run"
	"rollout/shared/core/shard"
	"rollout/shared/record"
	"rollout/shared/result"
)

// tokens are sums of tokens.
type tokens struct{ prompt, completion, wasted int64 }

func (t *tokens) add(c shard.Counts) {
	t.prompt += c.PromptTokens
	t.completion += c.CompletionTokens
	t.wasted += c.WastedTokens
}

func tokensOf(c shard.Counts) (t tokens) {
	t.add(c)
	return t
}

// coordinatorTokens checks that the tokens of a run are the sum of those of its done
// shards, each counted once. The audit's mutex is held.
func (a *audit) coordinatorTokens(s run.State) {
	if s.Phase.Ended() {
		return // what finalize has counted: see checkTokens
	}
	var want tokens
	for _, r := range s.Done.Set.Ranges() {
		for n := r.Lo; n < r.Hi; n++ {
			want.add(a.shards[identity.ShardKey(s.Run, n)].Counts)
		}
	}
	if got := tokensOf(s.Counts); got != want {
		a.breakf("the run has %+v, its done shards %+v", got, want)
	}
}

// checkTokens checks the tokens of the ended run: of each shard against its rows, and of
// the summary and the coordinator against the shards. The engine must have answered with
// what is counted, but for what workers took with them that did not end in order.
func (s *scenario) checkTokens(ctx context.Context, st run.State, sum record.Summary) {
	var all tokens
	for n := range st.Shards {
		d, known := s.audit.shards[identity.ShardKey(s.id, n)]
		if !known {
			continue
		}
		all.add(d.Counts)
		if d.Counts.Kept > 0 { // those rows have tokens that this run has not spent
			continue
		}
		got, want := tokensOf(d.Counts), s.rowTokens(ctx, d)
		if got.prompt != want.prompt || got.completion != want.completion {
			s.audit.breakf("shard %d counts %+v, its rows have %+v", n, got, want)
		}
	}
	got := tokens{sum.PromptTokens, sum.CompletionTokens, sum.WastedTokens}
	if got != all || tokensOf(st.Counts) != all {
		s.audit.breakf("the summary has %+v, the run %+v, its shards %+v", got, tokensOf(st.Counts), all)
	}
	if s.http != nil || s.thefts {
		return // what a failed request has cost is estimated; a holder who is robbed counts nothing
	}
	l := &s.spending
	l.mu.Lock()
	defer l.mu.Unlock()
	var asked, lost int64
	for _, a := range l.answers {
		asked += a.tokens
		if _, ok := l.ended[a.worker]; ok {
			lost += a.tokens
		}
	}
	counted := all.prompt + all.completion + all.wasted
	if counted > asked || st.Reason == run.ReasonDone && counted+lost < asked {
		s.audit.breakf("the engine has answered with %d tokens, %d are counted, and %d may be lost", asked, counted, lost)
	}
}

// rowTokens sums up the tokens in the rows of a done shard.
func (s *scenario) rowTokens(ctx context.Context, d shard.Doc) (t tokens) {
	add := func(row []byte) {
		var r struct {
			Usage struct {
				Prompt     int64 `json:"prompt_tokens"`
				Completion int64 `json:"completion_tokens"`
			}
		}
		if !bytes.Contains(row, []byte(`"usage"`)) {
			return // of a copy, whose original has them
		}
		if err := json.Unmarshal(row, &r); err != nil {
			s.t.Fatal(err)
		}
		t.prompt += r.Usage.Prompt
		t.completion += r.Usage.Completion
	}
	for _, row := range s.rowsOf(ctx, d) {
		if row.Class == "" {
			add(row.Bytes)
		}
	}
	return t
}

// rowsOf returns the output rows of a done shard, and of a sealed one its error rows, too.
// A sealed shard's rows have the number of their item in the shard.
func (s *scenario) rowsOf(ctx context.Context, d shard.Doc) (rows []result.Row) {
	if d.Result != nil {
		for _, b := range split(s.object(ctx, d.Result.Key)[:d.OutputLen]) {
			rows = append(rows, result.Row{Bytes: b})
		}
		return rows
	}
	if d.Checkpoint == nil {
		return nil
	}
	rows, err := result.ParseCheckpoint(s.object(ctx, d.Checkpoint.Key), d.Items)
	if err != nil {
		s.t.Fatal(err)
	}
	return rows
}
