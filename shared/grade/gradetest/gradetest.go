// Package gradetest is the conformance suite of graders.
package gradetest

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"

	"rollout/shared/grade"
)

// Fixture is a grader with a case that scores 1 and one that scores 0.
type Fixture struct {
	Grader       grade.Grader
	Right, Wrong grade.Case
}

// Run checks what the port promises of a grader.
func Run(t *testing.T, f Fixture) {
	t.Helper()
	t.Run("OrderOfCases", f.orderOfCases)
	t.Run("NoCases", f.noCases)
	t.Run("ConcurrentCalls", f.concurrentCalls)
	t.Run("EndedContext", f.endedContext)
}

// cases returns n cases of which some are right, and their scores.
func (f Fixture) cases(n int) (cases []grade.Case, want []grade.Score) {
	for i := range n {
		c, s := f.Wrong, grade.Score{}
		if i%3 == 0 {
			c, s = f.Right, grade.Score{Value: 1}
		}
		c.ID = fmt.Sprintf("case-%d", i)
		cases, want = append(cases, c), append(want, s)
	}
	return cases, want
}

func (f Fixture) orderOfCases(t *testing.T) {
	for _, n := range []int{1, 2, 7, 100} {
		cases, want := f.cases(n)
		before := slices.Clone(cases)
		if got := f.Grader.Grade(t.Context(), cases); !slices.Equal(got, want) {
			t.Errorf("%d cases: scores %v, want %v", n, got, want)
		}
		for i := range cases {
			if cases[i].ID != before[i].ID || cases[i].Answer != before[i].Answer {
				t.Errorf("%d cases: the grader changed case %d", n, i)
			}
		}
	}
}

func (f Fixture) noCases(t *testing.T) {
	if got := f.Grader.Grade(t.Context(), nil); len(got) != 0 {
		t.Errorf("%d scores of no case", len(got))
	}
}

func (f Fixture) concurrentCalls(t *testing.T) {
	var all sync.WaitGroup
	for n := range 8 {
		all.Go(func() {
			cases, want := f.cases(n + 1)
			if got := f.Grader.Grade(t.Context(), cases); !slices.Equal(got, want) {
				t.Errorf("%d cases beside others: scores %v, want %v", n+1, got, want)
			}
		})
	}
	all.Wait()
}

func (f Fixture) endedContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	cases, _ := f.cases(3)
	for i, s := range f.Grader.Grade(ctx, cases) {
		if s != grade.Missing(grade.Stopped) {
			t.Errorf("case %d after the end of its context: %+v, want the cause %s", i, s, grade.Stopped)
		}
	}
}
