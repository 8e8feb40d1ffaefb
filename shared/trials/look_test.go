package trials

import (
	"fmt"
	"iter"
	"strings"
	"testing"

	"rollout/shared/config"
	"rollout/shared/core/identity"
	"rollout/shared/fault"
	"rollout/shared/record"
)

// racing is a run of two variants that prunes.
func racing(t *testing.T) *fixture {
	t.Helper()
	c := twoVariants()
	rule := config.DefaultPruning()
	rule.Rule, rule.Looks, rule.MinTasks = config.PruneRace, 4, 5
	c.Pruning = &rule
	c.Grades = []config.Grade{{Name: "g", Kind: config.GradeExact}, {Name: "h", Kind: config.GradeExact}}
	return newFixture(t, c, tasks(30))
}

// look decides look n of the run of 120 trials, whose first variant is right and whose second one is
// not, for what edit leaves of its trials.
func (f *fixture) look(n int, edit func(*TrialEnd) bool) (record.Look, error) {
	f.t.Helper()
	places := LookPlaces(f.m.Config, 120)
	from := 0
	if n > 1 {
		from = places[n-2]
	}
	var ended iter.Seq2[TrialEnd, error] = func(yield func(TrialEnd, error) bool) {
		for i := from; i < places[n-1]; i++ {
			e := TrialEnd{Index: i, Row: fmt.Appendf(nil, `{"score":%d,"scores":{"g":{"score":%d},"h":{"score":1}}}`,
				1-i%2, 1-i%2)}
			if edit(&e) && !yield(e, nil) {
				return
			}
		}
	}
	return Look{Blobs: f.blobs, Manifest: f.m, Number: n, Places: places, Trials: 120, Ended: ended}.Decide(f.t.Context())
}

func all(*TrialEnd) bool { return true }

// keep creates the object of a look, as planning does.
func (f *fixture) keep(l record.Look) {
	f.put(record.LookKey(testRun, l.Look), string(record.Encode(l)))
}

// TestSecondLookGoesOnFromTheSumsOfTheFirst reads the trials behind the place of the first look
// alone, and compares variants that the first has left.
func TestSecondLookGoesOnFromTheSumsOfTheFirst(t *testing.T) {
	t.Parallel()
	f := racing(t)
	first, err := f.look(1, all)
	f.check(err)
	v := first.Variants[1]
	const why = "look 1 of 4: its score 0 on 10 tasks is worse than the 1 of plain (p 0.002, for all pairs"
	if first.Trials != 20 || first.From != 40 || first.Best != "plain" || !v.Pruned || v.Tasks != 10 ||
		v.Pair.Better != 10 || !strings.HasPrefix(v.Why, why) {
		t.Errorf("%s", record.Encode(first))
	}
	first.Variants[1].Pruned = false // so that the next one has two variants too
	f.keep(first)
	second, err := f.look(2, all)
	f.check(err)
	if v := second.Variants[1]; second.Trials != 40 || second.From != 60 || v.Tasks != 20 || v.Pair.Better != 20 ||
		!v.Pruned {
		t.Errorf("%s", record.Encode(second))
	}
	if again, err := f.look(2, all); err != nil || string(record.Encode(again)) != string(record.Encode(second)) {
		t.Errorf("repeated: %s, %v", record.Encode(again), err)
	}
	first.Variants[1].Pruned = true
	f.keep(first)
	second, err = f.look(2, func(e *TrialEnd) bool { return e.Index%2 == 0 })
	f.check(err)
	if len(second.Variants) != 1 || second.Variants[0].Name != "plain" || second.LastTest != 1 {
		t.Errorf("after one is pruned: %s", record.Encode(second))
	}
}

func TestInfrastructureSaysNothingAndFailuresScoreZero(t *testing.T) {
	t.Parallel()
	l, err := racing(t).look(1, func(e *TrialEnd) bool {
		switch {
		case e.Index < 6:
			e.Class = fault.Engine
		case e.Index%2 == 0 && e.Index < 10:
			e.Class = fault.Refused
		case e.Index == 10:
			e.Row = []byte(`{"score":null,"scores":{"g":{"score":null,"cause":"open"},"h":{"score":1}}}`)
		}
		return true
	})
	if v := l.Variants[0]; err != nil || v.Tasks != 6 || *v.Score != 4./6 || l.Variants[1].Tasks != 7 {
		t.Errorf("%s, %v", record.Encode(l), err)
	}
}

func TestNamedGraderDecides(t *testing.T) {
	t.Parallel()
	f := racing(t)
	f.m.Config.Pruning.Grader = "h"
	l, err := f.look(1, all)
	if err != nil || l.Variants[1].Pruned || *l.Variants[1].Score != 1 {
		t.Errorf("%s, %v", record.Encode(l), err)
	}
}

// TestDamagedSumsAreCorrupt checks the object that a look has left for the next one.
func TestDamagedSumsAreCorrupt(t *testing.T) {
	t.Parallel()
	f := racing(t)
	first, err := f.look(1, all)
	f.check(err)
	f.keep(first)
	good := f.object(record.LookScoresKey(testRun, 1))
	f.put(record.LookScoresKey(testRun, 1), good+"x")
	if _, err := f.look(2, all); !fault.Is(err, fault.Corrupt) {
		t.Errorf("other bytes: %v", err)
	}
	short := good[:len(good)-1]
	f.put(record.LookScoresKey(testRun, 1), short)
	first.Scores = identity.Content([]byte(short)).String()
	f.keep(first)
	if _, err := f.look(2, all); !fault.Is(err, fault.Corrupt) {
		t.Errorf("sums of another run: %v", err)
	}
	if err := f.blobs.Delete(t.Context(), record.LookScoresKey(testRun, 1), ""); err != nil {
		t.Fatal(err)
	}
	if _, err := f.look(2, all); !fault.Is(err, fault.NotFound) {
		t.Errorf("no sums: %v", err)
	}
}

// TestPruningLogHasARowForEachLook publishes a run that was stopped after two of four looks.
func TestPruningLogHasARowForEachLook(t *testing.T) {
	t.Parallel()
	f := racing(t)
	for n := 1; n <= 2; n++ {
		l, err := f.look(n, func(e *TrialEnd) bool { return n == 1 || e.Index%2 == 0 })
		f.check(err)
		f.keep(l)
	}
	f.m.Config.Grades = f.m.Config.Grades[:1]
	f.looks = 2
	out := f.finish(func(of Trial) answer {
		if of.Index >= 40 && of.Variant == "terse" {
			return answer{class: fault.Pruned}
		}
		return answer{score: 1}
	})
	log := strings.Split(strings.TrimSpace(f.object(record.OutputKey(testRun, PruningFile))), "\n")
	v := out.Variants[1]
	if len(log) != 2 || !strings.HasPrefix(log[1], `{"schema":1,"look":2,"looks":4,"rule":"race","trials":40,"from":60,`) {
		t.Errorf("the log is %q", log)
	}
	if out.Looks != 4 || v.Pruned != 40 || v.PrunedAt == nil || v.PrunedAt.Look != 1 || v.PrunedAt.From != 40 ||
		out.Variants[0].PrunedAt != nil {
		t.Errorf("%+v", out)
	}
}
