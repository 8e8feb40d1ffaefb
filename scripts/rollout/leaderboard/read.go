package leaderboard

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"

	"rollout/shared/blob"
	"rollout/shared/core/statistics"
	"rollout/shared/dialect"
	"rollout/shared/fault"
	"rollout/shared/input"
	"rollout/shared/jsonl"
	"rollout/shared/record"
	"rollout/shared/text"
	"rollout/shared/trials"
)

// Bounds of a report.
const (
	maxListed = 50   // tasks of a list
	maxFlips  = 50   // tasks with answers
	maxAnswer = 4000 // bytes of an answer
)

// meanReducer is the reducer of reports that name none.
const meanReducer = "mean"

// Options of a report.
type Options struct {
	// First and Second are the variants whose answers are compared task by task; "" takes the two
	// with the best scores.
	First, Second string
	// Reduce names what makes the score of a task of those of its trials: see
	// statistics.ParseReducer. "" is the mean.
	Reduce string
}

// Read makes the report of an ended run. NotFound means that the run has no files, Invalid that a
// variant does not exist.
func Read(ctx context.Context, run Run, o Options) (r Report, err error) {
	var sum record.Summary
	if err := input.ReadJSON(ctx, run.Blobs, record.OutputKey(run.Manifest.Run, record.SummaryFile), &sum); err != nil {
		return r, err
	}
	if sum.Trials == nil {
		return r, fault.New(fault.Corrupt, "the summary of run %s is not that of trials", sum.Run)
	}
	r = Report{Run: sum.Run, Name: sum.Name, Phase: sum.Phase, Model: sum.Model, EndedAt: sum.EndedAt,
		CostUSD: sum.CostUSD, Tasks: sum.Trials.Tasks, Trials: sum.Trials.Trials,
		Replications: run.Manifest.Config.DesignOf().Replications,
		Variants:     ranked(sum.Trials.Variants), JudgesUSD: sum.Trials.JudgesUSD,
		Flips: []Flip{}}
	if o, err = o.of(r.Variants); err != nil {
		return r, err
	}
	reducer, err := statistics.ParseReducer(cmp.Or(o.Reduce, meanReducer))
	if err != nil {
		return r, fault.WithKind(fault.Invalid, err, "reduce the trials of each task")
	}
	g, err := readGrid(ctx, run, r.Variants)
	if err != nil {
		return r, err
	}
	g.reduce(reducer)
	if r.Reducer = reducer.String(); r.Reducer != meanReducer {
		r.Reduced = g.reduced()
	}
	r.Pairs, r.Passes = g.pairs(r.Variants), g.passes(r.Replications)
	r.Unsolved, r.Solved = g.extremes()
	if o.Second != "" {
		r.First, r.Second = o.First, o.Second
		r.Flips, r.Better, r.Worse = g.flips(g.number(o.First), g.number(o.Second))
		err = readAnswers(ctx, run, r.Flips)
	}
	return r, err
}

// ranked returns the variants, the best first and those without a score last.
func ranked(vs []record.TrialVariant) []record.TrialVariant {
	sorted := slices.Clone(vs)
	slices.SortStableFunc(sorted, func(a, b record.TrialVariant) int {
		if a.Score == nil || b.Score == nil {
			return cmp.Compare(btoi(a.Score == nil), btoi(b.Score == nil))
		}
		return cmp.Compare(*b.Score, *a.Score)
	})
	return sorted
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// of returns the options with their defaults: the second best variant, and the best.
func (o Options) of(vs []record.TrialVariant) (Options, error) {
	if o.First == "" && o.Second == "" {
		if len(vs) < 2 {
			return o, nil
		}
		o.First, o.Second = vs[1].Name, vs[0].Name
		return o, nil
	}
	for _, name := range []string{o.First, o.Second} {
		if !slices.ContainsFunc(vs, func(v record.TrialVariant) bool { return v.Name == name }) {
			return o, &fault.Error{Kind: fault.Invalid, Err: fmt.Errorf("the run has no variant %.64q", name),
				Remedy: "name two of its variants: `rollout report` lists them"}
		}
	}
	if o.First == o.Second {
		return o, fault.New(fault.Invalid, "a variant can't be compared with itself: name another one than %s", o.First)
	}
	return o, nil
}

// eachRow calls each for every row of a file of the run.
func eachRow(ctx context.Context, run Run, name string, each func(line []byte) error) error {
	key := record.OutputKey(run.Manifest.Run, name)
	object, _, err := run.Blobs.Get(ctx, key, blob.GetOptions{})
	if err != nil {
		return fault.Wrap(err, "read %s", key)
	}
	defer object.Close()
	lines := jsonl.NewScanner(object, jsonl.Options{})
	for n := 1; ; n++ {
		l, err := lines.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil && n%1024 == 0 {
			err = ctx.Err()
		}
		if err == nil && !l.Blank && !l.TooLong {
			err = each(l.Bytes)
		}
		if err != nil {
			return fault.Wrap(err, "%s, line %d", key, n)
		}
	}
}

// readGrid reads the scores of a run's trials.
func readGrid(ctx context.Context, run Run, vs []record.TrialVariant) (*grid, error) {
	g := newGrid(vs)
	err := eachRow(ctx, run, trials.TrialsFile, func(line []byte) error {
		var f trials.Fact
		if err := json.Unmarshal(line, &f); err != nil {
			return &fault.Error{Kind: fault.Corrupt, Op: "decode the row", Err: err,
				Remedy: "the file was changed after the run: restore its older version from the bucket"}
		}
		g.add(f)
		return nil
	})
	g.sort()
	return g, err
}

// readAnswers reads the answers of the trials of the flips.
func readAnswers(ctx context.Context, run Run, flips []Flip) error {
	wanted := map[string]*Side{}
	for n := range flips {
		for _, s := range []*Side{&flips[n].First, &flips[n].Second} {
			if s.class == "" {
				wanted[s.Trial] = s
			}
		}
	}
	if len(wanted) == 0 {
		return nil
	}
	return eachRow(ctx, run, record.CompletionsFile, func(line []byte) error {
		id, ok := dialect.ScanID(dialect.Plain, line)
		if s := wanted[string(id)]; ok && s != nil {
			texts, err := dialect.ReadAnswers(dialect.Plain, line)
			if err != nil {
				return err
			}
			if len(texts) > 0 {
				s.Answer = text.Truncate(texts[0], maxAnswer, "…")
			}
		}
		return nil
	})
}
