package run

import (
	"strings"
	"testing"
	"time"
)

// TestFinalizingIgnoresLaterPlan covers late events of a plan that was stuck when
// its run was stopped: the output files keep to the plan as it was.
func TestFinalizingIgnoresLaterPlan(t *testing.T) {
	t.Parallel()
	s := New(testRun)
	s.Phase, s.Reason, s.Shards, s.Items = Finalizing, ReasonStopped, 3, 30
	next, _ := Step(s, Observed{Shards: 5, Items: 50, Complete: true}, Rules{}, []Event{{Kind: Wakeup}}, epoch)
	if next.Shards != 3 || next.Items != 30 || next.Complete {
		t.Errorf("%d shards, %d items, complete: %v", next.Shards, next.Items, next.Complete)
	}
}

// TestRetriesCountsUnansweredRequests checks the count by which reclaim spaces its
// wakeups of a run whose plan or files stay missing.
func TestRetriesCountsUnansweredRequests(t *testing.T) {
	t.Parallel()
	s := New(testRun)
	for n := range 3 {
		at := epoch.Add(time.Duration(n) * time.Hour)
		s, _ = Step(s, Observed{Shards: 2}, Rules{}, []Event{{Kind: Wakeup}}, at)
	}
	if s.Retries != 2 { // the first step saw the plan's progress
		t.Errorf("%d retries of the plan, want 2", s.Retries)
	}
	s, _ = Step(s, Observed{Shards: 3}, Rules{}, []Event{{Kind: Reevaluate}}, epoch.Add(4*time.Hour))
	if s.Retries != 0 {
		t.Errorf("%d retries after progress, want 0", s.Retries)
	}
	s.Phase, s.Complete = Finalizing, true
	for range 3 {
		s, _ = Step(s, Observed{Shards: 5, Complete: true}, Rules{}, []Event{{Kind: Wakeup}}, epoch)
	}
	if s.Retries != 3 {
		t.Errorf("%d retries of the files, want 3", s.Retries)
	}
}

// TestMessagesAreClipped checks that a message is short valid UTF-8, so that it
// is read back as it was written.
func TestMessagesAreClipped(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, in, want string }{
		{"short", "gone", "gone"},
		{"long", strings.Repeat("a", 1000), strings.Repeat("a", 256) + "…"},
		{"cut within a rune", "a" + strings.Repeat("ü", 500), "a" + strings.Repeat("ü", 127) + "…"},
		{"invalid bytes", "a\xffb", "a\uFFFDb"},
	} {
		s, _ := Step(New(testRun), Observed{}, Rules{}, []Event{{Kind: InputMissing, Why: c.in}}, epoch)
		if s.Message != c.want || s.Effects[0].Why != c.want {
			t.Errorf("%s: message %q, effect %q", c.name, s.Message, s.Effects[0].Why)
		}
	}
}

func TestResumeStartsNewCountOfFailedShards(t *testing.T) {
	t.Parallel()
	s := New(testRun)
	s.Phase, s.FailedStreak, s.Control = Paused, 5, 1
	s, _ = Step(s, Observed{Shards: 9, Sequence: 2}, Rules{FailedShards: 3}, nil, epoch)
	if s.Phase != Running || s.FailedStreak != 0 {
		t.Errorf("%s with %d failed shards in a row, want running with 0", s.Phase, s.FailedStreak)
	}
}
