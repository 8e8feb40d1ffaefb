// Package rules has the graders that need nothing but the answer and the row's
// expected value: exact, regex, numeric, choice, label and json_schema.
//
// New makes a grader of a [[grade]] table. Each scores 1 or 0: an answer that does
// not have the form that was asked for is wrong, and only a row whose expected
// value is missing or can't be compared gives no score. The package does no I/O,
// reads no clock, and loads no schema but the one in the config.
package rules

import (
	"context"

	"rollout/shared/config"
	"rollout/shared/fault"
	"rollout/shared/grade"
)

// New returns the grader of a kind that needs nothing but the answer. A pattern
// or schema that can't be compiled is Invalid, and so is a kind that needs a
// service.
func New(g config.Grade) (grade.Grader, error) {
	score, err := scorer(g)
	if err != nil {
		return nil, &fault.Error{Kind: fault.Invalid, Op: "grader " + g.Name, Err: err}
	}
	return pure(score), nil
}

// pure is a grader that scores each case by itself.
type pure func(grade.Case) grade.Score

// Grade implements Grader.
func (score pure) Grade(ctx context.Context, cases []grade.Case) []grade.Score {
	out := make([]grade.Score, len(cases))
	for i, c := range cases {
		if ctx.Err() != nil {
			out[i] = grade.Missing(grade.Stopped)
			continue
		}
		out[i] = score(c)
	}
	return out
}

func scorer(g config.Grade) (func(grade.Case) grade.Score, error) {
	part, err := newExtractor(g.Extract, g.Pick)
	if err != nil {
		return nil, err
	}
	switch g.Kind {
	case config.GradeExact:
		return exact(part, g.IgnoreCase), nil
	case config.GradeRegex:
		return regex(g)
	case config.GradeNumeric:
		return numeric(part, g), nil
	case config.GradeChoice:
		return choice(part, g.Choices), nil
	case config.GradeLabel:
		return label(part, g), nil
	case config.GradeSchema:
		return schema(part, g.Schema)
	}
	return nil, fault.New(fault.Invalid, "the kind %q is not one that grades by itself", g.Kind)
}

// verdict returns the score of an answer that is right or wrong.
func verdict(right bool) grade.Score {
	if right {
		return grade.Score{Value: 1}
	}
	return grade.Score{}
}
