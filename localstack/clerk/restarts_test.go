package clerk_test

import (
	"regexp"
	"strings"
	"testing"

	"rollout/shared/config"
	"rollout/shared/record"
	"rollout/shared/rollout"
)

// restartMark is what the ids of answers to a restarted stage have more. Example: "t1.e0x1.d0.s0".
var restartMark = regexp.MustCompile(`(\.e\d+)x\d+\.`)

// TestInterruptedBatchIsAskedAnew interrupts every third stage of a run that restarts its
// batches. What counts is as in a run that was not interrupted, and the answers before are
// listed as restarted.
func TestInterruptedBatchIsAskedAnew(t *testing.T) {
	t.Parallel()
	c, tickets := small(t)
	calm := newBench(t, c, tickets, clerks(t))
	want := calm.run()
	c.Runner.OnInterrupt = config.InterruptRestart
	b := newBench(t, c, tickets, clerks(t))
	b.again = func(stage int) bool { return stage%3 == 0 }
	got := b.run()
	restarted, interrupted := 0, 0
	stages := b.stages()
	for n, s := range stages {
		if s.Restarts > 0 {
			before := stages[n-1]
			if s.From != before.From || s.To != before.To || s.Batch != before.Batch || before.Input%3 != 0 {
				t.Errorf("stage %d does not take the place of the one before: %+v", s.Input, s)
			}
			restarted += before.Items
		}
		if s.Kind == rollout.Answering && s.Input%3 == 0 {
			interrupted++
		}
	}
	if restarted == 0 || stages[len(stages)-1].Restarted != interrupted || got.Failed[rollout.Restarted] != restarted {
		t.Errorf("%d answers are restarted, %d stages were interrupted: %v", restarted, interrupted, got.Failed)
	}
	if *got.Accuracy != *want.Accuracy || got.Tickets != want.Tickets || got.Accepted != want.Accepted ||
		got.Answered != want.Answered {
		t.Errorf("it came to %+v, undisturbed to %+v", got, want)
	}
	for _, file := range []string{rollout.TrajectoriesFile, rollout.SelectionsFile, rollout.DistillFile} {
		key := record.OutputKey(testRun, file)
		if restartMark.ReplaceAllString(b.object(key), "$1.") != calm.object(key) {
			t.Errorf("%s differs", file)
		}
	}
	failures := b.object(record.OutputKey(testRun, rollout.FailuresFile))
	if n := strings.Count(failures, `"cause":"restarted"`); n != restarted {
		t.Errorf("%d rows are restarted, want %d", n, restarted)
	}
}

// TestRestartsAreBounded interrupts every stage.
func TestRestartsAreBounded(t *testing.T) {
	t.Parallel()
	c, tickets := small(t)
	c.Runner.OnInterrupt, c.Rollout.Epochs = config.InterruptRestart, 1
	b := newBench(t, c, tickets, clerks(t))
	b.again = func(int) bool { return true }
	b.run()
	batches := map[int]int{}
	for _, s := range b.stages() {
		if s.Kind == rollout.Answering {
			batches[s.Batch]++
		}
	}
	for batch, asked := range batches {
		if asked != 4 {
			t.Errorf("batch %d is asked %d times", batch, asked)
		}
	}
}

// TestInterruptedBatchIsKept does not ask for restarts.
func TestInterruptedBatchIsKept(t *testing.T) {
	t.Parallel()
	c, tickets := small(t)
	b := newBench(t, c, tickets, clerks(t))
	b.again = func(int) bool { return true }
	b.run()
	for _, s := range b.stages() {
		if s.Restarts > 0 {
			t.Errorf("stage %d is a restart", s.Input)
		}
	}
}

// TestRunThatEndsBeforeARestartKeepsItsAnswers ends a run when the stage that would take
// the place of another is saved, and nothing of it is planned.
func TestRunThatEndsBeforeARestartKeepsItsAnswers(t *testing.T) {
	t.Parallel()
	c, tickets := small(t)
	c.Runner.OnInterrupt = config.InterruptRestart
	b := newBench(t, c, tickets, clerks(t))
	b.again = func(int) bool { return true }
	answered := 0
	for number := 1; answered == 0; number++ {
		b.stage(b.bucket, number, plainly)
		if s := b.stages()[number-1]; s.Kind == rollout.Answering {
			answered = s.Items
			_, err := b.appendStage(b.bucket, number+1, plainly)
			b.check(err)
		}
	}
	got := b.publish()
	if got.Failed[rollout.Restarted] != 0 || got.Answered+got.Failed["unparsable"] != answered {
		t.Errorf("of %d answers it has %+v", answered, got)
	}
}
