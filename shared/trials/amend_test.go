package trials

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"rollout/shared/config"
	"rollout/shared/fault"
	"rollout/shared/record"
)

// amended returns a child of the fixture's run with that config and file of further tasks, and the
// lines that it adds.
func (f *fixture) amended(c config.Run, more string, stages ...record.TrialStage) (record.Manifest, []string, error) {
	f.t.Helper()
	m := f.m
	m.Run, m.Config, m.Stages = testRun[:25]+"F", c, stages
	m.Parent = &record.Parent{Run: testRun, Amend: &record.Amendment{Tasks: more}}
	a := Amended{Blobs: f.blobs, Manifest: m, Tasks: []record.Ranges{f.from}, First: uint64(len(f.lines()))}
	if more != "" {
		key := record.MoreTasksKey(m.Run)
		a.Tasks = append(a.Tasks, record.Ranges{Key: key, Version: f.put(key, more)})
	}
	var b bytes.Buffer
	err := Amend(f.t.Context(), a, &b)
	return m, slices.Collect(strings.Lines(b.String())), err
}

// TestAmendAddsWhatAWholeRunHasMore amends by replications, by a variant and by tasks at once, in
// each order: with the lines of the parent, the lines are those of a run that had all from the
// beginning, but for when they are begun.
func TestAmendAddsWhatAWholeRunHasMore(t *testing.T) {
	t.Parallel()
	for _, order := range []string{config.TrialsInterleaved, config.TrialsRandom, config.TrialsByVariant,
		config.TrialsByTask} {
		old := twoVariants()
		old.Design.Order = order
		whole := twoVariants()
		whole.Design.Order, whole.Design.Replications = order, 3
		whole.Variants = append(whole.Variants, config.Variant{Name: "third"})
		f, all := newFixture(t, old, tasks(4)), newFixture(t, whole, tasks(6))
		_, more, _ := strings.Cut(tasks(6), "task-2")
		more = `{"id":"task-2` + more // it has tasks 2 and 3 again
		m, added, err := f.amended(whole, more, record.TrialStage{Tasks: 4, Variants: 2, Replications: 2},
			record.TrialStage{Tasks: 6, Variants: 3, Replications: 3})
		if err != nil || len(added) != 6*3*3-4*2*2 || Added(m.Stages) != len(added) {
			t.Fatalf("%s: %d lines are added (%v)", order, len(added), err)
		}
		want := all.byID()
		n := 0
		for p := range Places(m, 6) {
			line := append(f.lines(), added...)[n]
			of, err := TrialOf(whole, []byte(line))
			f.check(err)
			if of.Index != uint64(n) || of.Slot != uint64(DesignOf(whole, 6).Slot(p)) {
				t.Fatalf("%s: line %d is %+v", order, n, of)
			}
			n++
			raw, err := readTrial([]byte(line))
			f.check(err)
			was := string(encode(raw))
			raw.Index, raw.Slot = 0, 0
			if got := strings.Replace(line, was, string(encode(raw)), 1); got != want[of.ID] {
				t.Fatalf("%s: %s is\n%swant\n%s", order, of.ID, got, want[of.ID])
			}
			delete(want, of.ID)
		}
		if len(want) > 0 {
			t.Errorf("%s: %d trials are missing", order, len(want))
		}
	}
}

func TestTaskThatHasChangedIsRefusedByItsName(t *testing.T) {
	t.Parallel()
	f := newFixture(t, twoVariants(), tasks(3))
	changed := `{"id":"task-1","prompt":"What is 2?","answer":"sentinel-1"}` + "\n" + `{"id":"new","prompt":"p"}` + "\n"
	_, _, err := f.amended(twoVariants(), changed, record.TrialStage{}, record.TrialStage{Tasks: 4, Variants: 2,
		Replications: 2})
	if !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), `line 1: the run has another task "task-1"`) {
		t.Errorf("%v", err)
	}
}
