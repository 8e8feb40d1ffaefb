package finalize

import (
	"context"
	"errors"

	"golang.org/x/sync/errgroup"

	"rollout/functions/internal/judging"
	"rollout/shared/core/shard"
	"rollout/shared/dialect"
	"rollout/shared/fault"
	"rollout/shared/grade"
	"rollout/shared/grade/judge"
	"rollout/shared/record"
	"rollout/shared/result"
)

// verdicts are the scores that one judge gave, in the order of the answers. They are read
// beside the answers, some shards at a time:
//
//	rows of answers ───────▶ judged ─▶ rows with scores
//	rows of the judge ─▶ of ──┘
type verdicts struct {
	judging.Judge
	judge  *judge.Judge
	grader int // its number in the run
	began  bool
	lo, hi int       // the shards that are not read yet
	read   []verdict // not taken yet
}

// verdict is the outcome of a judge's item.
type verdict struct {
	about judge.Ref
	score grade.Score
}

// newVerdicts returns what the judges of a run will have said; none without judges.
func (f *Finalizer) newVerdicts(m record.Manifest) (all []*verdicts, err error) {
	for number, grader := range m.Config.Judges() {
		v := &verdicts{Judge: judging.Judge{Index: f.index, Manifest: m, Number: number}, grader: grader}
		if v.judge, err = judge.New(m.Config.Grades[grader]); err != nil {
			return nil, err
		}
		all = append(all, v)
	}
	return all, nil
}

// judged writes a committed shard of answers, whose result is b, with the scores that
// judges gave.
func (w *writer) judged(ctx context.Context, n int, d shard.Doc, b []byte) error {
	rows, first, err := w.rowsOf(ctx, n, d, b, w.manifest.Dialect)
	if err != nil {
		return err
	}
	for _, r := range rows {
		if r.Class == "" {
			if r.Bytes, err = w.withVerdicts(ctx, first+uint64(r.Item), r.Bytes); err != nil {
				return fault.Wrap(err, "item %d", first+uint64(r.Item))
			}
		}
		if err := w.row(r); err != nil {
			return err
		}
	}
	return nil
}

// rowsOf returns the rows of a shard's result b, in item order, and the shard's first
// item.
func (w *writer) rowsOf(ctx context.Context, n int, d shard.Doc, b []byte, of string) ([]result.Row, uint64, error) {
	e, _, cut, err := w.cut(ctx, n)
	if err != nil {
		return nil, 0, err
	}
	first := e.FirstItem + cut.FirstItem
	rows, err := result.Of{Dialect: dialect.Name(of), First: first, Items: int(cut.Items)}.Rows(b, d.OutputLen)
	return rows, first, fault.Wrap(err, "result %s", d.Result.Key)
}

// withVerdicts returns an output row with the scores that judges gave. Those of judges
// that were not asked, because the run ended first, stay open.
func (w *writer) withVerdicts(ctx context.Context, item uint64, row []byte) ([]byte, error) {
	graders := w.manifest.Config.Grades
	scores, err := grade.ReadScores(row, graders)
	if err != nil {
		return nil, err
	}
	changed := false
	for _, v := range w.verdicts {
		for k := range scores {
			if scores[k][v.grader].Cause != grade.Open {
				continue
			}
			s, found, err := v.of(ctx, w, judge.Ref{Item: item, Answer: k})
			if err != nil {
				return nil, fault.Wrap(err, "read what judge %s said", graders[v.grader].Name)
			}
			if found {
				scores[k][v.grader], changed = s, true
			}
		}
	}
	if !changed {
		return row, nil
	}
	return grade.AppendRescored(make([]byte, 0, len(row)), row, graders, scores), nil
}

// of returns the judge's score of an answer, which must be behind that of the call before.
// Found is false if the judge has no outcome.
func (v *verdicts) of(ctx context.Context, w *writer, about judge.Ref) (s grade.Score, found bool, err error) {
	if !v.began {
		if v.lo, v.hi, err = v.Shards(ctx, w.state.Shards); err != nil {
			return s, false, err
		}
		if v.lo, err = v.Seek(ctx, v.lo, v.hi, about); err != nil {
			return s, false, err
		}
		v.began = true
	}
	for {
		for len(v.read) > 0 && v.read[0].about.Compare(about) < 0 {
			v.read = v.read[1:]
		}
		if len(v.read) > 0 {
			return v.read[0].score, v.read[0].about == about, nil
		}
		if v.lo >= v.hi {
			return s, false, nil
		}
		if err := v.more(ctx, w); err != nil {
			return s, false, err
		}
	}
}

// more reads the next shards, several at once. It keeps a few bytes of each verdict.
func (v *verdicts) more(ctx context.Context, w *writer) error {
	docs, err := w.docsOf(ctx, v.lo, min(v.lo+aheadResults, v.hi))
	if err != nil {
		return err
	}
	docs = docs[:result.Together(docs)]
	read := make([][]verdict, len(docs))
	group, ctx := errgroup.WithContext(ctx)
	for i, d := range docs {
		group.Go(func() (err error) {
			read[i], err = v.shard(ctx, w, d)
			return fault.Wrap(err, "shard %d", d.Shard)
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	v.lo += len(docs)
	for _, some := range read {
		v.read = append(v.read, some...)
	}
	return nil
}

// shard reads the verdicts of one shard. An item that has no row has none.
func (v *verdicts) shard(ctx context.Context, w *writer, d shard.Doc) (out []verdict, err error) {
	var rows []result.Row
	switch {
	case w.neverSent(d.Shard):
		return nil, nil
	case d.State != shard.Done:
		return nil, fault.New(fault.Unavailable, "it is %s, although its run is over", d.State)
	case d.Result != nil:
		var b []byte
		if b, err = result.Read(ctx, w.Blobs, *d.Result); err == nil {
			if rows, _, err = w.rowsOf(ctx, d.Shard, d, b, string(dialect.Plain)); err != nil {
				return nil, err
			}
		}
	case d.Checkpoint != nil:
		rows, err = result.ReadCheckpoint(ctx, w.Blobs, *d.Checkpoint, d.Items)
	}
	if errors.Is(err, result.ErrLost) {
		w.Log.ErrorContext(ctx, "a judge's answers are lost", "run", w.manifest.Run, "shard", d.Shard, "error", err)
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	for _, r := range rows {
		one, err := v.verdict(r)
		if err != nil {
			return nil, err
		}
		out = append(out, one)
	}
	return out, nil
}

// verdict reads the outcome of a judge's item from its row. A failed item has no score,
// whatever the reason.
func (v *verdicts) verdict(r result.Row) (verdict, error) {
	about, err := judging.RefOf(r.Bytes)
	switch {
	case err != nil:
		return verdict{}, err
	case r.Class.Unanswered():
		return verdict{about, grade.Missing(grade.Stopped)}, nil
	case r.Class != "":
		return verdict{about, grade.Missing(grade.JudgeFailed)}, nil
	}
	s, _, err := judging.ReadScore(v.judge, r.Bytes)
	return verdict{about, s}, err
}
