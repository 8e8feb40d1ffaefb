package trial

import (
	"bytes"
	"context"
	"encoding/json"

	"rollout/gpuworker/worker"
	"rollout/shared/core/identity"
	"rollout/shared/dialect"
	"rollout/shared/fault"
	"rollout/shared/grade"
	"rollout/shared/jsonl"
	"rollout/shared/trials"
)

// put gives a trial its row.
func (e *execution) put(ctx context.Context, i int, r Result, tries int, wasted int64) error {
	line := e.shard.Lines[i]
	it, err := dialect.Parse(dialect.Plain, line.Bytes)
	if err != nil {
		return fault.WithKind(fault.Corrupt, err, "read the line of a trial") // which is the run's own
	}
	model := e.shard.Manifest.DialectModel()
	id := it.ItemID(model, line.Place.Item)
	if class := classOf(r); class != "" {
		f := it.Failure(it.RowID(id), line.Place, class, errorText(r, tries))
		e.shard.Put(i, dialect.AppendError(nil, dialect.Plain, f), class, worker.Tokens{Wasted: wasted + tokensOf(r)})
		return nil
	}
	scores, ok := e.grade(ctx, line.Bytes, it, id, r)
	if !ok {
		e.shard.AddWastedTokens(wasted+tokensOf(r), r.Model.Estimated > 0)
		return nil // the shard stops before it is graded
	}
	usage := dialect.Usage{PromptTokens: r.Model.PromptTokens, CompletionTokens: r.Model.CompletionTokens}
	row := dialect.AppendOutput(nil, it, model, dialect.Result{ID: it.RowID(id), GeneratedAt: e.Clock.Now().UTC(),
		Answers: []dialect.Answer{{Text: r.Answer, FinishReason: limitName(r), Usage: usage}},
		Scores:  scores, Agent: agentRecord(r, tries)})
	e.shard.AddWastedTokens(wasted, false)
	e.shard.Put(i, row, "", worker.Tokens{Prompt: usage.PromptTokens, Completion: usage.CompletionTokens,
		Unknown: r.Model.Estimated > 0, Finish: limitName(r)})
	return nil
}

// classOf returns the class of a trial without an answer; "" of one that has its row.
func classOf(r Result) fault.Class {
	switch r.End {
	case ResultError:
		return fault.ResultError
	case GradeError:
		return fault.GradeError
	case Infrastructure:
		return r.Class
	}
	return ""
}

// grade returns the members of the row with its scores; none in a run without graders. An agent
// that a limit has ended before it left a result scores 0. It returns false if ctx ends first.
func (e *execution) grade(ctx context.Context, line []byte, it *dialect.Item, id identity.ContentID,
	r Result) ([]byte, bool) {
	if e.graders == nil {
		return nil, true
	}
	graders := e.shard.Manifest.Config.Grades
	if !r.Found {
		return grade.AppendMembers(nil, graders, [][]grade.Score{make([]grade.Score, len(graders))}), true
	}
	ended := e.shard.TrackGrading()
	defer ended()
	_, prompt := it.Prompt()
	done := make(chan []byte, 1)
	e.graders.Grade(ctx, line, []grade.Case{{ID: id.String(), Prompt: prompt, Answer: r.Answer}},
		func(members []byte) { done <- members })
	members := <-done
	return members, ctx.Err() == nil
}

// agentRecord returns the member "agent" of the row.
func agentRecord(r Result, tries int) []byte {
	o, u := r.Process, r.Model
	record := trials.AgentRecord{Isolation: o.Level.String(), Enforced: o.Enforced, Exit: string(o.Verdict),
		ExitCode: o.ExitCode, Signal: o.Signal, Limit: r.Limit, Seconds: o.Wall.Seconds(), CPUSeconds: o.CPU.Seconds(),
		PeakMemory: o.PeakMemory, Output: o.Stdout.Bytes + o.Stderr.Bytes, Stderr: text(o.Stderr.Kept),
		Requests: u.Requests, PromptTokens: u.PromptTokens, CompletionTokens: u.CompletionTokens, Estimated: u.Estimated,
		Refused: u.Refused, Forbidden: u.Forbidden, FirstForbidden: u.FirstForbidden,
		Dollars: float64(u.NanoUSD) / 1e9, Tries: tries, Result: withoutAnswer(r.JSON), Scores: r.Scores}
	b, err := json.Marshal(record)
	if err != nil { // numbers of grade.json are finite, and its result is valid JSON
		return nil
	}
	return b
}

// text returns bytes of a program as valid UTF-8.
func text(b []byte) string { return string(bytes.ToValidUTF8(b, []byte("\uFFFD"))) }

// withoutAnswer returns the members of a result but its answer; nil without any.
func withoutAnswer(result []byte) json.RawMessage {
	if result == nil {
		return nil
	}
	out := []byte{'{'}
	o := jsonl.ReadObject(result)
	for m, ok := o.Next(); ok; m, ok = o.Next() {
		if string(m.Name) == "answer" {
			continue
		}
		if len(out) > 1 {
			out = append(out, ',')
		}
		out = append(append(append(out, m.RawName...), ':'), m.Value...)
	}
	if o.Err() != nil || len(out) == 1 {
		return nil
	}
	return append(out, '}')
}
