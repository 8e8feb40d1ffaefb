package clerk_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"rollout/localstack/clerk"
	"rollout/shared/core/guidance"
	"rollout/shared/record"
	"rollout/shared/rollout"
)

// promoted reads the promoted guidance of a mission.
func (b *bench) promoted(mission string) guidance.Guidance {
	b.Helper()
	g, err := guidance.Decode([]byte(b.object(rollout.PromotedKey(testRun, mission))))
	b.check(err)
	return g
}

// TestDemoLearnsTheRules runs the shipped example.
func TestDemoLearnsTheRules(t *testing.T) {
	t.Parallel()
	c, tickets := demo(t)
	b := newBench(t, c, tickets, clerks(t))
	sum := b.run()
	stages := b.stages()
	last, m := stages[len(stages)-1], sum.Missions["refunds"]
	if !m.Gated || m.HoldoutAtStart == nil || m.Holdout == nil {
		t.Fatalf("the summary has %+v", m)
	}
	t.Logf("holdout: %.3f at the start, %.3f of the promoted step, over %d tickets; %d of %d reflections "+
		"accepted; %d items, stopped: %q", *m.HoldoutAtStart, *m.Holdout, m.HoldoutTickets,
		sum.Accepted, sum.Reflections, b.items, sum.Stopped)
	if *m.Holdout < *m.HoldoutAtStart+0.2 {
		t.Errorf("the promoted step has a score of %.3f on the holdout, the start %.3f: want 0.2 more", *m.Holdout,
			*m.HoldoutAtStart)
	}
	before := 0.0
	for step, s := range last.Steps["refunds"] {
		if s.Scored == 0 { // two reflections followed one another
			continue
		}
		mean := s.Score / float64(s.Scored)
		t.Logf("step %d: %.3f over %d answers", step, mean, s.Scored)
		if mean <= before {
			t.Errorf("step %d answers with a score of %.3f, the step before with %.3f", step, mean, before)
		}
		before = mean
	}
	g := b.promoted("refunds")
	if g.Step != sum.Guidance["refunds"] || g.Step < 2 {
		t.Errorf("step %d is promoted, the newest is %d", g.Step, sum.Guidance["refunds"])
	}
	known := map[string]bool{}
	for _, text := range clerk.Rules() {
		known[text] = true
	}
	learnt := 0
	for _, e := range g.Entries {
		if known[e.Text] {
			learnt++
		}
	}
	if learnt < 4 {
		t.Errorf("the guidance has %d of the %d rules: %+v", learnt, len(known), g.Entries)
	}
}

// TestSameInputsMakeTheSameBytes repeats a run: in another order of answers, and
// with batches that are cut into other numbers of shards.
func TestSameInputsMakeTheSameBytes(t *testing.T) {
	t.Parallel()
	c, tickets := small(t)
	var want map[string]string
	for n, parallelism := range []int{0, 1, 2, 3, 8} {
		b := newBench(t, c, tickets, clerks(t))
		b.manifest.Config.Runner.Parallelism, b.shuffle = parallelism, uint64(n)
		b.run()
		got := b.objects(rollout.AttemptsFile)
		if want == nil {
			want = got
		}
		same(t, fmt.Sprintf("cut into %d", parallelism), got, want)
	}
}

// TestSeedDecidesTheRun compares runs with seeds: each is the same when it is repeated,
// learns, and differs from the others.
func TestSeedDecidesTheRun(t *testing.T) {
	t.Parallel()
	c, tickets := small(t)
	orders := map[string]int64{}
	for seed := range int64(4) {
		var first map[string]string
		for range 2 {
			b := newBench(t, c, tickets, clerks(t))
			own := *c.Rollout
			own.Seed = seed
			b.manifest.Config.Rollout = &own
			sum := b.run()
			if sum.Accepted == 0 {
				t.Errorf("with seed %d nothing is learnt", seed)
			}
			got := b.objects()
			if first == nil {
				first = got
			}
			same(t, fmt.Sprintf("seed %d", seed), got, first)
			order := b.object(record.AppendedKey(testRun, 2))
			if other, ok := orders[order]; ok && other != seed {
				t.Errorf("seeds %d and %d have the same first batch", seed, other)
			}
			orders[order] = seed
		}
	}
}

// TestLinesOfABatchCarryItsStep is I6: all members of a batch see one step of their
// mission's guidance, that of its stage, and record it.
func TestLinesOfABatchCarryItsStep(t *testing.T) {
	t.Parallel()
	c, tickets := small(t)
	b := newBench(t, c, tickets, clerks(t))
	b.run()
	batches := 0
	for _, s := range b.stages() {
		if s.Kind != rollout.Answering {
			continue
		}
		batches++
		for _, o := range b.outcomes[s.Input] {
			l := lineOf(t, o.Line)
			if l.Step != s.Guidance["refunds"] || l.Batch != s.Batch || l.Epoch != s.Epoch {
				t.Fatalf("a line of batch %d with step %d has step %d: %s", s.Batch, s.Guidance["refunds"], l.Step, o.Line)
			}
			g, err := guidance.Decode([]byte(b.object(rollout.GuidanceKey(testRun, "refunds", l.Step))))
			b.check(err)
			if want := g.Text(); !containsText(o.Line, want) {
				t.Fatalf("a line of step %d does not have the text of its guidance: %s", l.Step, o.Line)
			}
		}
	}
	if batches < 4 {
		t.Errorf("the run has %d batches", batches)
	}
}

// TestShardsHaveWholeTickets cuts the stages of a run for any number of workers: answers
// and comparisons have whole tickets in each shard, and each item is in one. Prompts of a
// reflection are four to a shard.
func TestShardsHaveWholeTickets(t *testing.T) {
	t.Parallel()
	c, tickets := small(t)
	b := newBench(t, c, tickets, clerks(t))
	b.run()
	for _, s := range b.stages() {
		for parallelism := range 17 {
			own := b.manifest.Config
			runner := *own.Runner
			runner.Parallelism = parallelism
			own.Runner = &runner
			sum, shards := 0, s.Shards(own)
			for _, items := range shards {
				sum += items
				if reflects := slices.Contains(reflecting, s.Kind); items == 0 || reflects && items > 4 ||
					!reflects && items%s.Members != 0 {
					t.Fatalf("a shard of stage %d has %d items of %d a ticket", s.Input, items, s.Members)
				}
			}
			want := min(max(1, parallelism), s.Items/s.Members)
			if slices.Contains(reflecting, s.Kind) {
				want = (s.Items + 3) / 4
			}
			if s.Kind == rollout.Ending {
				want = 0
			}
			if sum != s.Items || parallelism > 0 && len(shards) != want {
				t.Fatalf("stage %d, %s, has %d items in the shards %v for %d workers", s.Input, s.Kind, s.Items, shards,
					parallelism)
			}
		}
	}
}

// TestEntriesCountTheAnswersThatNamedThem compares the counts of the promoted entries with
// the trajectories under the steps before: each answer is counted once. The clerk adds one
// rule at a time, so that there are many steps.
func TestEntriesCountTheAnswersThatNamedThem(t *testing.T) {
	t.Parallel()
	c, tickets := demo(t)
	c.Gate.Off = true
	honest := clerks(t)
	b := newBench(t, c, tickets, func(id string, body []byte) reply {
		said := honest(id, body)
		if strings.Contains(id, ".consolidate.") {
			var p guidance.Plan
			if err := json.Unmarshal([]byte(said.text), &p); err != nil {
				t.Errorf("%v in %s", err, said.text)
			}
			said.text = plan(p.Operations[:min(1, len(p.Operations))]...)
		}
		return said
	})
	b.run()
	g := b.promoted("refunds")
	texts := map[int]guidance.Guidance{}
	for step := range g.Step {
		of, err := guidance.Decode([]byte(b.object(rollout.GuidanceKey(testRun, "refunds", step))))
		b.check(err)
		texts[step] = of
	}
	want := map[string]guidance.Tally{} // by the text of the entry
	for line := range strings.Lines(b.object(record.OutputKey(testRun, rollout.TrajectoriesFile))) {
		var row struct {
			Step       int
			Score      float64
			Completion string
		}
		b.check(json.Unmarshal([]byte(line), &row))
		entry := 0
		if n, err := fmt.Sscanf(row.Completion, "Entry [%d] decides", &entry); n != 1 || err != nil || row.Step >= g.Step {
			continue
		}
		tally := want[texts[row.Step].Entries[entry-1].Text]
		if row.Score == 1 {
			tally.Hits++
		} else {
			tally.Misses++
		}
		want[texts[row.Step].Entries[entry-1].Text] = tally
	}
	counted := 0
	for _, e := range g.Entries {
		if got := (guidance.Tally{Hits: e.Hits, Misses: e.Misses}); got != want[e.Text] {
			t.Errorf("%q has the counts %+v, want %+v", e.Text, got, want[e.Text])
		}
		counted += e.Hits
	}
	if counted == 0 || g.Step < 4 {
		t.Errorf("%d answers are counted until step %d", counted, g.Step)
	}
}

// TestEqualCandidatesAreComparedOnce has a model that proposes the same plan twice.
func TestEqualCandidatesAreComparedOnce(t *testing.T) {
	t.Parallel()
	c, tickets := small(t)
	b := newBench(t, c, tickets, clerks(t))
	b.run()
	gates := 0
	for _, s := range b.stages() {
		if s.Kind != rollout.Gating {
			continue
		}
		gates++
		if r := s.Reflection; len(r.Candidates) != 2 || s.Items != 2*r.Pool.Len()*s.Members {
			t.Errorf("stage %d compares %d candidates in %d answers", s.Input, len(r.Candidates), s.Items)
		}
	}
	if gates == 0 {
		t.Error("nothing is compared")
	}
}
