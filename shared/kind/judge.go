package kind

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"io"

	"rollout/shared/config"
	"rollout/shared/dialect"
	"rollout/shared/fault"
	"rollout/shared/grade"
	"rollout/shared/grade/judge"
	"rollout/shared/record"
)

// Each grader of the kind judge is a role of its batch or trials. When all answers are there,
// the plan grows by one object for each judge, in their order, with a line for each answer
// that the judge reads.
//
//	inputs, trials ─▶ answers ─▶ lines of judge 0 ─▶ verdicts ─▶ lines of judge 1 ─▶ verdicts ─▶ complete
//
// A worker leaves the scores of judges open, and finalize reads them from the verdicts.

// judgeRoles is Kind.Roles of a batch, and the first roles of trials.
func judgeRoles(c config.Run) (roles []Role) {
	for _, i := range c.Judges() {
		g := c.Grades[i]
		roles = append(roles, Role{Name: "judge-" + g.Name, Key: fmt.Sprintf("grade[%d].model", i),
			Model: config.Model{URI: cmp.Or(g.Model, c.Model.URI)}, Sampling: g.JudgeSampling(), Request: g.Request})
	}
	return roles
}

// judgeCount is Kind.Appends of a batch.
func judgeCount(c config.Run) int { return len(c.Judges()) }

// judgeRoleOf is Kind.RoleOf of a batch.
func judgeRoleOf(_ context.Context, a Appended) (string, error) {
	return judgeRole(a), nil
}

// judgeRole returns the role of an object with the lines of a judge.
func judgeRole(a Appended) string { return a.Manifest.Roles[a.Input-a.Manifest.JudgeInput(0)].Name }

// askJudge is Kind.Grow of a batch, and of trials that are over: it writes a line for each answer that a judge reads.
func askJudge(_ context.Context, g Growth, w io.Writer) error {
	c := g.Manifest.Config
	grader := c.Judges()[g.Input-g.Manifest.JudgeInput(0)]
	j, err := judge.New(c.Grades[grader])
	if err != nil {
		return err
	}
	out := bufio.NewWriter(w)
	var line []byte
	for it, err := range g.Items {
		if err != nil {
			return err
		}
		if it.Class != "" {
			continue
		}
		cases, err := casesOf(g.Manifest, it, grader)
		if err != nil {
			return fault.Wrap(err, "item %d", it.Index)
		}
		for _, one := range cases {
			line = j.AppendLine(line[:0], one.ref, one.Case)
			if _, err := out.Write(line); err != nil {
				return err
			}
		}
	}
	return out.Flush()
}

// judged is an answer that a judge reads.
type judged struct {
	ref judge.Ref
	grade.Case
}

// casesOf returns the answers of an item whose score of that grader is open.
func casesOf(m record.Manifest, it Item, grader int) (cases []judged, err error) {
	scores, err := grade.ReadScores(it.Row, m.Config.Grades)
	if err != nil {
		return nil, err
	}
	name := dialect.Name(m.Dialect)
	texts, err := dialect.ReadAnswers(name, it.Row)
	if err == nil && len(texts) != len(scores) {
		err = fault.New(fault.Corrupt, "its row has %d answers and the scores of %d", len(texts), len(scores))
	}
	if err != nil {
		return nil, err
	}
	asked, err := dialect.Parse(name, it.Line)
	if err != nil {
		return nil, fault.WithKind(fault.Corrupt, err, "an answered line")
	}
	_, prompt := asked.Prompt()
	for k, s := range scores {
		if s[grader].Cause != grade.Open {
			continue
		}
		one := judged{judge.Ref{Item: it.Index, Answer: k}, grade.Case{Prompt: prompt, Answer: texts[k]}}
		if path := m.Config.Grades[grader].Expected; path != "" {
			one.Expected = grade.Lookup(it.Line, path)
		}
		cases = append(cases, one)
	}
	return cases, nil
}
