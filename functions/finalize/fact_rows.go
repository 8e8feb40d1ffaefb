package finalize

import (
	"bytes"
	"context"
	"io"

	"rollout/functions/finalize/facts"
	"rollout/shared/core/run"
	"rollout/shared/core/shard"
	"rollout/shared/dialect"
	"rollout/shared/fault"
	"rollout/shared/grade"
	"rollout/shared/input"
	"rollout/shared/jsonl"
	"rollout/shared/kind"
	"rollout/shared/record"
	"rollout/shared/result"
)

// factRows turns the rows that a shard has in the run's files into facts. It holds the lines
// and the rows of one shard.
type factRows struct {
	*writer
	kind          kind.Kind
	file          *facts.Writer
	answers, errs bytes.Buffer // the rows of the shard, by their file
}

// newFactRows returns what writes facts to a file.
func newFactRows(f *Finalizer, m record.Manifest, k kind.Kind, s run.State, file *facts.Writer) *factRows {
	r := &factRows{kind: k, file: file}
	r.writer = f.writerTo(m, s, sinkOf(&r.answers), sinkOf(&r.errs), sinkOf(io.Discard))
	return r
}

// shards writes the facts of the shards from lo to hi. It returns false at a shard that is
// not final.
func (r *factRows) shards(ctx context.Context, lo, hi int) (bool, error) {
	for n := lo; n < hi; {
		docs, err := r.docsOf(ctx, n, min(n+docsAtOnce, hi))
		if err != nil {
			return false, err
		}
		if final, err := r.some(ctx, n, docs); err != nil || !final {
			return false, err
		}
		n += len(docs)
	}
	return true, nil
}

// some writes the facts of the shards from lo on.
func (r *factRows) some(ctx context.Context, lo int, docs []shard.Doc) (final bool, err error) {
	if r.segments != nil {
		r.readahead = r.readAhead(ctx, lo, docs)
		defer r.readahead.stop()
	}
	for i, d := range docs {
		if !isFinal(r.state, d) {
			return false, nil
		}
		if err := r.one(ctx, lo+i, d); err != nil {
			return false, fault.Wrap(err, "shard %d", lo+i)
		}
	}
	return true, nil
}

// one writes the facts of a shard; none of one whose role has no output.
func (r *factRows) one(ctx context.Context, n int, d shard.Doc) error {
	e, row, cut, err := r.cut(ctx, n)
	if err != nil || !r.manifest.HasOutput(cut.Role) {
		return err
	}
	lines, err := r.lines(ctx, e, row, cut)
	if err != nil {
		return err
	}
	r.answers.Reset()
	r.errs.Reset()
	r.current = n
	if err := r.shardRows(ctx, n, d); err != nil {
		return err
	}
	for _, s := range []*sink{r.out, r.writer.errs} {
		if err := s.Flush(); err != nil {
			return err
		}
	}
	of := result.Of{Dialect: dialect.Name(r.manifest.Dialect), First: e.FirstItem + cut.FirstItem, Items: len(lines)}
	outputs := int64(r.answers.Len())
	rows, err := of.Rows(append(r.answers.Bytes(), r.errs.Bytes()...), outputs)
	if err != nil {
		return err
	}
	for i, l := range lines {
		f, err := r.fact(l, rows[i])
		if err == nil {
			err = r.file.Write(f)
		}
		if err != nil {
			return fault.Wrap(err, "item %d", l.Place.Item)
		}
	}
	return nil
}

// fact makes the fact of an item from its line and its row.
func (r *factRows) fact(l input.Line, row result.Row) (f facts.Fact, err error) {
	name := dialect.Name(r.manifest.Dialect)
	f = facts.Fact{Item: l.Place.Item, Class: row.Class, Prompt: promptOf(name, l.Bytes)}
	if r.kind.Facts != nil && l.Bytes != nil {
		if f.Own, err = r.kind.Facts.ValuesOf(r.manifest, l.Bytes); err != nil {
			return f, err
		}
	}
	if row.Class != "" {
		failure, ok := dialect.ReadFailure(name, row.Bytes)
		if !ok {
			return f, fault.New(fault.Corrupt, "its row is not an error row")
		}
		f.ID, f.Error = known(failure.ID), &failure.Message
		return f, nil
	}
	out, err := dialect.ReadOutput(name, row.Bytes)
	if err != nil {
		return f, err
	}
	f.ID, f.Completions = known(out.ID), out.Texts
	if len(out.FinishReasons) > 0 {
		f.FinishReason = known(out.FinishReasons[0])
	}
	if u := out.Usage; !u.Unknown {
		f.PromptTokens, f.CompletionTokens = &u.PromptTokens, &u.CompletionTokens
	}
	if len(r.manifest.Config.Grades) == 0 {
		return f, nil
	}
	graded, err := grade.ReadRow(row.Bytes)
	if err != nil {
		return f, err
	}
	f.Score, f.Scores = graded.Score, make(map[string]*float64, len(graded.Scores))
	for grader, s := range graded.Scores {
		f.Scores[grader] = s.Score
	}
	return f, nil
}

// known returns nil for "".
func known(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

// promptOf returns the prompt of a line, or its messages as JSON; nil for a line without
// either.
func promptOf(name dialect.Name, line []byte) *string {
	if line == nil {
		return nil
	}
	it, err := dialect.Parse(name, line)
	if err != nil {
		return nil
	}
	_, raw := it.Prompt()
	if raw == nil {
		return nil
	}
	if text, ok := jsonl.Unquote(nil, raw); ok {
		return new(string(text))
	}
	return new(string(raw))
}
