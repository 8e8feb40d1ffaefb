package clerk_test

import (
	"encoding/json"
	"strings"
	"testing"

	"rollout/localstack/clerk"
	"rollout/shared/config"
	"rollout/shared/core/selection"
	"rollout/shared/record"
	"rollout/shared/rollout"
)

// TestTicketsThatTeachNothingAreReplaced follows the batches of a run that may take further
// tickets of the epoch, and compares each with what the rule says of the answers before it.
func TestTicketsThatTeachNothingAreReplaced(t *testing.T) {
	t.Parallel()
	c, tickets := small(t)
	if full, short := followReplacements(t, c, tickets); full == 0 {
		t.Errorf("no batch is full, and %d reached the bound", short)
	}
	c.Missions[0].Entries = clerk.Rules() // most answers are right, so that few tickets teach
	if full, short := followReplacements(t, c, tickets); short == 0 {
		t.Errorf("%d batches are full, and none reached the bound", full)
	}
}

// followReplacements runs the run, and returns how many batches had as many tickets that
// teach as they shall have, and how many took all the tickets that they may.
func followReplacements(t *testing.T, c config.Run, tickets string) (full, short int) {
	t.Helper()
	const size, bound = 20, 12
	own := *c.Rollout
	own.Epochs = 1
	c.Reflection, c.Gate, c.Rollout = nil, nil, &own
	c.Decodes[0].Samples = 3
	c.Runner.RolloutBatchSize, c.Runner.MaxReplacements = size, bound
	b := newBench(t, c, tickets, clerks(t))
	sum := b.run()
	var lessons []selection.Lesson // of the tickets, as they were answered
	for line := range strings.Lines(b.object(record.OutputKey(testRun, rollout.SelectionsFile))) {
		var row struct{ Teaches selection.Lesson }
		b.check(json.Unmarshal([]byte(line), &row))
		lessons = append(lessons, row.Teaches)
	}
	at, taught, replaced, all := 0, 0, 0, 0
	for _, s := range b.stages() {
		if s.Kind != rollout.Answering {
			continue
		}
		if !s.Replaces { // a new batch begins
			if at > 0 && taught < size && replaced < bound {
				t.Errorf("batch %d ended with %d tickets that teach, and %d replaced", s.Batch-1, taught, replaced)
			}
			taught, replaced = 0, 0
		} else {
			replaced += s.To - s.From
			all += s.To - s.From
			if want := min(size-taught, bound-replaced+s.To-s.From, s.Tickets-s.From); s.To-s.From != want {
				t.Errorf("batch %d takes %d tickets more, want %d", s.Batch, s.To-s.From, want)
			}
		}
		if s.From != at || s.Guidance["refunds"] != 0 || s.Replaced != replaced || s.Taught != taught {
			t.Fatalf("stage %d is %+v, after %d tickets of which %d teach", s.Input, s, at, taught)
		}
		for at = s.From; at < s.To; at++ {
			if lessons[at] != selection.NoLesson {
				taught++
			}
		}
		if taught >= size {
			full++
		} else if replaced == bound {
			short++
		}
	}
	if at != 240 || sum.Tickets != 240 {
		t.Errorf("%d tickets are answered", at)
	}
	var row struct{ Replaced int }
	b.check(json.Unmarshal([]byte(b.object(record.OutputKey(testRun, rollout.MetricsFile))), &row))
	if row.Replaced != all || all == 0 {
		t.Errorf("%d tickets are counted as replacements, want %d", row.Replaced, all)
	}
	return full, short
}

// TestReplacementsSeeTheGuidanceOfTheirBatch is I6 for batches of several stages.
func TestReplacementsSeeTheGuidanceOfTheirBatch(t *testing.T) {
	t.Parallel()
	c, tickets := small(t)
	c.Runner.MaxReplacements = 30
	b := newBench(t, c, tickets, clerks(t))
	b.run()
	steps, stages := map[int]int{}, 0
	for _, s := range b.stages() {
		if s.Kind != rollout.Answering {
			continue
		}
		if step, known := steps[s.Batch]; known && (step != s.Guidance["refunds"] || !s.Replaces) {
			t.Errorf("batch %d sees the steps %d and %d", s.Batch, step, s.Guidance["refunds"])
		}
		if s.Replaces {
			stages++
		}
		steps[s.Batch] = s.Guidance["refunds"]
	}
	if stages == 0 {
		t.Error("nothing is replaced")
	}
}
