// Package judging finds what the judges of a run are asked in the run's plan.
//
// The lines of a judge are an appended input of the run, in the order of the answers that
// they are about: see package kind. Finding one takes a binary search over the judge's
// shards, of each of which the lines are read. The package writes nothing.
package judging

import (
	"context"
	"slices"
	"sort"

	"rollout/shared/dialect"
	"rollout/shared/fault"
	"rollout/shared/grade"
	"rollout/shared/grade/judge"
	"rollout/shared/input"
	"rollout/shared/record"
)

// Judge is one judge of a run, by its number among the run's judges.
type Judge struct {
	Index    *input.Index
	Manifest record.Manifest
	Number   int
}

// Shards returns the shards [lo, hi) of the judge's lines among the run's planned shards.
// The range is empty before its lines are planned, and if it reads no answer.
func (j Judge) Shards(ctx context.Context, planned int) (lo, hi int, err error) {
	all := len(j.Manifest.Config.Judges())
	lo, err = j.first(ctx, j.Number)
	if fault.Is(err, fault.NotFound) || err == nil && lo >= planned {
		return planned, planned, nil
	}
	for next := j.Number + 1; err == nil && next < all; next++ {
		hi, err = j.first(ctx, next)
		if err == nil {
			return lo, min(hi, planned), nil
		}
		if fault.Is(err, fault.NotFound) { // this one has no lines
			err = nil
		}
	}
	return lo, planned, err
}

// first returns the first shard of a judge.
func (j Judge) first(ctx context.Context, number int) (int, error) {
	l, err := j.Index.LocateLine(ctx, j.Manifest.Run, j.Manifest.JudgeInput(number), 1)
	return l.Shard(), err
}

// Seek returns the shard of [lo, hi) whose lines include the one about the answer, if any
// does: the last that does not begin behind it.
func (j Judge) Seek(ctx context.Context, lo, hi int, at judge.Ref) (int, error) {
	var failed error
	behind := sort.Search(max(0, hi-lo), func(k int) bool {
		lines, err := j.Lines(ctx, lo+k)
		if err == nil && len(lines) == 0 {
			err = fault.New(fault.Corrupt, "shard %d of run %s has no lines", lo+k, j.Manifest.Run)
		}
		var ref judge.Ref
		if err == nil {
			ref, err = RefOf(lines[0].Bytes)
		}
		if err != nil {
			failed = err
			return true
		}
		return ref.Compare(at) > 0
	})
	return max(lo, lo+behind-1), failed
}

// Lines returns the lines of a planned shard.
func (j Judge) Lines(ctx context.Context, shard int) ([]input.Line, error) {
	e, row, err := j.Index.FindShard(ctx, j.Manifest.Run, shard)
	if err != nil {
		return nil, err
	}
	in, err := j.Index.LoadShard(ctx, j.Manifest, e.Range, row)
	return in.Lines, err
}

// ReadScore reads the score from the output row of a judge's line. said are the judge's
// answers: one or more.
func ReadScore(j *judge.Judge, row []byte) (s grade.Score, said []judge.Said, err error) {
	answers, err := dialect.ReadCompletions(row)
	if err != nil {
		return s, nil, err
	}
	for _, a := range answers {
		cut := slices.Contains(dialect.CutReasons(), a.FinishReason) || a.FinishReason == "content_filter"
		said = append(said, judge.Said{Text: a.Text, Cut: cut})
	}
	return j.Score(said), said, nil
}

// RefOf returns the answer that a judge's line, or the row of one, is about.
func RefOf(line []byte) (judge.Ref, error) {
	id, ok := dialect.ScanID(dialect.Plain, line)
	if !ok {
		return judge.Ref{}, fault.New(fault.Corrupt, "a judge's line has no id")
	}
	return judge.ParseRef(id)
}
