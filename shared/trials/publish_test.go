package trials

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"rollout/shared/config"
	"rollout/shared/core/design"
	"rollout/shared/fault"
	"rollout/shared/grade"
	"rollout/shared/record"
)

func graded() config.Run {
	c := twoVariants()
	c.Grades = []config.Grade{{Name: "right", Kind: config.GradeExact, Expected: "task.answer"}}
	return c
}

func TestFactsOfTrials(t *testing.T) {
	t.Parallel()
	c := graded()
	c.Design.Replications = 1
	f := newFixture(t, c, tasks(3))
	f.finish(func(of Trial) answer {
		switch of.ID {
		case "t0.terse.r0":
			return answer{class: fault.Refused}
		case "t1.plain.r0":
			return answer{class: fault.Engine}
		case "t1.terse.r0":
			return answer{cause: grade.TimedOut}
		case "t2.terse.r0":
			return answer{class: fault.Pruned}
		}
		return answer{score: 1}
	})
	place := func(index, slot int, id string) string {
		_, variant, _ := strings.Cut(strings.TrimSuffix(id, ".r0"), ".")
		return fmt.Sprintf(`{"schedule_idx":%d,"slot":%d,"trial_id":"%s","task":"task-%s","variant":"%s","replication":0`,
			index, slot, id, id[1:2], variant)
	}
	seed := func(task, variant string) string { return fmt.Sprint(design.SeedOf(7, task, variant, 0)) }
	const used = `,"finish_reason":"stop","prompt_tokens":3,"completion_tokens":2}`
	want := []string{
		place(0, 0, "t0.plain.r0") + `,"verdict":"answered","score":1,"seed":` + seed("task-0", "plain") + used,
		place(1, 1, "t0.terse.r0") + `,"verdict":"failed","class":"refused","score":0,"seed":` +
			seed("task-0", "terse") + `}`,
		place(2, 2, "t1.plain.r0") + `,"verdict":"infrastructure","class":"engine","score":null,"seed":` +
			seed("task-1", "plain") + `}`,
		place(3, 3, "t1.terse.r0") + `,"verdict":"answered","score":null,"seed":` + seed("task-1", "terse") + used,
		place(4, 4, "t2.plain.r0") + `,"verdict":"answered","score":1,"seed":` + seed("task-2", "plain") + used,
		place(5, 5, "t2.terse.r0") + `,"verdict":"pruned","class":"pruned","score":null,"seed":` +
			seed("task-2", "terse") + `}`,
	}
	if diff := cmp.Diff(strings.Join(want, "\n")+"\n", f.object(record.OutputKey(testRun, TrialsFile))); diff != "" {
		t.Errorf("%s (-want +got)\n%s", TrialsFile, diff)
	}
	grades := []string{
		place(0, 0, "t0.plain.r0") + `,"grader":"right","score":1}`,
		place(3, 3, "t1.terse.r0") + `,"grader":"right","score":null,"cause":"timeout"}`,
		place(4, 4, "t2.plain.r0") + `,"grader":"right","score":1}`,
	}
	if diff := cmp.Diff(strings.Join(grades, "\n")+"\n", f.object(record.OutputKey(testRun, GradesFile))); diff != "" {
		t.Errorf("%s (-want +got)\n%s", GradesFile, diff)
	}
}

// TestSumsOfVariants checks the sums against values that were computed by hand: the standard error
// is clustered by task.
func TestSumsOfVariants(t *testing.T) {
	t.Parallel()
	f := newFixture(t, graded(), tasks(2))
	got := f.finish(func(of Trial) answer {
		switch {
		case of.Variant == "plain": // 1 and 1 in the first task, 0 and 0 in the second
			return answer{score: map[string]float64{"task-0": 1, "task-1": 0}[of.Task]}
		case of.ID == "t0.terse.r0":
			return answer{class: fault.Engine}
		case of.ID == "t0.terse.r1":
			return answer{class: fault.TooLong}
		case of.ID == "t1.terse.r0":
			return answer{cause: grade.Unavailable}
		}
		return answer{score: 1}
	})
	num := func(x float64) *float64 { return &x }
	// The plain one: mean 0.5, sums of deviations 1 and −1 in two groups of two, so that the error is
	// √(2·2/1)/4 = 0.5, and the interval that of Wilson for one of two.
	want := record.Trials{Tasks: 2, Trials: 8, Variants: []record.TrialVariant{
		{Name: "plain", Trials: 4, Answered: 4, Scored: 4, ScoredTasks: 2, Score: num(0.5), StandardError: num(0.5),
			Low: num(0.0945312057), High: num(0.9054687943), Worst: num(0.5), Best: num(0.5),
			PromptTokens: 12, CompletionTokens: 8, SolvedTasks: 1, UntilSuccess: &record.UntilSuccess{Trials: 1}},
		{Name: "terse", Trials: 4, Answered: 2, Failed: map[string]int{"too_long": 1},
			Infrastructure: map[string]int{"engine": 1}, Ungraded: map[string]int{"unavailable": 1}, Scored: 2, ScoredTasks: 2,
			Score: num(0.5), StandardError: num(0.5), Low: num(0.0945312057), High: num(0.9054687943),
			Worst: num(0.25), Best: num(0.75), PromptTokens: 6, CompletionTokens: 4, SolvedTasks: 1,
			UntilSuccess: &record.UntilSuccess{Trials: 1}},
	}}
	if diff := cmp.Diff(want, got, cmpopts.EquateApprox(1e-8, 0)); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

// TestInfrastructureMovesNoScore loses one in twenty trials: the means stay those of the others.
func TestInfrastructureMovesNoScore(t *testing.T) {
	t.Parallel()
	c := graded()
	c.Design.Replications = 10
	score := func(of Trial) answer {
		return answer{score: float64(design.SeedOf(3, of.Task, of.Variant, 0) % 2)} // equal in all replications
	}
	whole := newFixture(t, c, tasks(20)).finish(score)
	part := newFixture(t, c, tasks(20)).finish(func(of Trial) answer {
		if of.Replication == 4 && of.Slot%2 == 0 {
			return answer{class: fault.Engine}
		}
		return score(of)
	})
	for n, v := range part.Variants {
		if v.Infrastructure["engine"] != 20 {
			t.Errorf("%s lost %v", v.Name, v.Infrastructure)
		}
		if d := math.Abs(*v.Score - *whole.Variants[n].Score); d > 1e-12 || *v.Worst >= *v.Score && *v.Score > 0 ||
			*v.Best <= *v.Score && *v.Score < 1 {
			t.Errorf("%s: %+v, without a loss %+v", v.Name, v, whole.Variants[n])
		}
	}
}

func TestRunWithoutGradersHasNoScores(t *testing.T) {
	t.Parallel()
	f := newFixture(t, twoVariants(), tasks(1))
	f.m.Config.Grades = nil
	got := f.finish(func(Trial) answer { return answer{class: fault.Refused} })
	for _, v := range got.Variants {
		if v.Score != nil || v.Worst != nil || v.Scored != 0 || v.Failed["refused"] != 2 {
			t.Errorf("%+v", v)
		}
	}
}

// TestScoresBeyondOneHaveNoBounds checks graders with a scale of their own.
func TestScoresBeyondOneHaveNoBounds(t *testing.T) {
	t.Parallel()
	got := newFixture(t, graded(), tasks(2)).finish(func(of Trial) answer {
		return answer{score: 5 * float64(of.Replication)}
	})
	for _, v := range got.Variants {
		if v.Score == nil || *v.Score != 2.5 || v.Worst != nil || v.Best != nil {
			t.Errorf("%+v", v)
		}
	}
}

// TestRunThatEndedBeforeItsPlanHasEmptyFiles also repeats the publication.
func TestRunThatEndedBeforeItsPlanHasEmptyFiles(t *testing.T) {
	t.Parallel()
	f := newFixture(t, graded(), "")
	f.put(record.OutputKey(testRun, record.CompletionsFile), "")
	f.put(record.OutputKey(testRun, record.ErrorsFile), "")
	for range 2 {
		if got := f.publish(0); got.Trials != 0 || got.Tasks != 0 || len(got.Variants) != 2 {
			t.Errorf("%+v", got)
		}
	}
	if f.object(record.OutputKey(testRun, TrialsFile))+f.object(record.OutputKey(testRun, GradesFile)) != "" {
		t.Error("the files have rows")
	}
}

func TestRowsThatAreMissingAreCorrupt(t *testing.T) {
	t.Parallel()
	f := newFixture(t, graded(), tasks(1))
	f.lines()
	f.put(record.OutputKey(testRun, record.CompletionsFile), "")
	f.put(record.OutputKey(testRun, record.ErrorsFile), "")
	if _, err := f.ended(4).Publish(t.Context()); !fault.Is(err, fault.Corrupt) {
		t.Errorf("it is published: %v", err)
	}
}
