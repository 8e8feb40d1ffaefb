package e2e

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"rollout/localstack/scenarios"
	"rollout/shared/core/run"
	"rollout/shared/record"
)

// C11: a run is stopped with five requests in flight. Each id is in exactly one
// file, and the answers are the undisturbed ones.
func TestC11StopWithRequestsInFlightKeepsAnswers(t *testing.T) {
	t.Parallel()
	file := promptsFile(t, simplePrompts(25))
	want := undisturbed(t, file)
	s := serveSlowly(t, 150*time.Millisecond)
	i := install(t, s.url, 0, strings.Replace(smallShards, "in_flight = 4", "in_flight = 5", 1))
	for range 3 {
		from := s.requests()
		id := i.submit(file)
		eventually(t, "a few are answered and five are in flight", func() bool {
			return s.requests() > from+8 && s.running() == 5
		})
		i.control("stop", id)
		i.await(id, run.Stopped)
		if n := wantEndedEarly(t, i.outcome(id), want, "canceled"); n == 0 {
			t.Error("no finished answer is kept")
		}
	}
}

// C12: a run is stopped before its first dispatch, or expires before it is
// planned. Every line becomes an error row under the user's own id.
func TestC12EndBeforeTheFirstDispatchGivesErrorRows(t *testing.T) {
	t.Parallel()
	file := promptsFile(t, simplePrompts(40))
	want := undisturbed(t, file)
	s := serveSlowly(t, 50*time.Millisecond)
	t.Run("stop", func(t *testing.T) {
		t.Parallel()
		i := install(t, s.url, 0, smallShards)
		id := i.submit(file)
		eventually(t, "the run can be stopped", func() bool {
			code, _ := request(t, "POST", i.url+"/v1/runs/"+string(id)+"/stop", "")
			return code < 300
		})
		i.await(id, run.Stopped)
		wantEndedEarly(t, i.outcome(id), want, "canceled")
	})
	t.Run("deadline", func(t *testing.T) {
		t.Parallel()
		i := install(t, s.url, 0, smallShards+"deadline = \"1ms\"\n")
		id := i.submit(file)
		i.await(id, run.Expired)
		wantEndedEarly(t, i.outcome(id), want, "expired")
	})
}

// C14: the deadline passes while the server answers no more. Finished answers
// are kept, the rest has expired, and `submit --wait` reports it.
func TestC14DeadlineKeepsFinishedAnswers(t *testing.T) {
	t.Parallel()
	file := promptsFile(t, scenarios.MixedPrompts(160))
	want := undisturbed(t, file)
	i := install(t, serve(t, "--freeze-after", "60").url, 2, smallShards+"deadline = \"15s\"\n")
	p := do(t, 1, "submit", "--wait", "--dir", i.dir, file)
	p.wantStderr("ended as expired")
	s := i.onlyRunOf("prompts.jsonl")
	if s.Phase != run.Expired {
		t.Errorf("the run is %s", s.Phase)
	}
	if n := wantEndedEarly(t, i.outcome(s.Run), want, "expired"); n == 0 {
		t.Error("no finished answer is kept")
	}
}

// A run is stopped while its workers are killed (I1).
func TestStopWhileWorkersAreKilled(t *testing.T) {
	t.Parallel()
	file := promptsFile(t, scenarios.MixedPrompts(320))
	want := undisturbed(t, file)
	m := newProcessKiller(t, 7)
	for range 3 {
		id := m.submit(file)
		m.awaitMoment(id, want.Summary.Completed)
		m.duringKill(id, "stop")
		m.killWorker(id)
		m.await(id, run.Stopped)
		wantEndedEarly(t, m.outcome(id), want, "canceled")
	}
}

// C17: SIGTERM during a run ends `rollout up` in order. `rollout status` shows
// what is committed while nothing runs, and the next `up` finishes the run.
func TestC17DrainAtHalfLosesNoAnswer(t *testing.T) {
	t.Parallel()
	for name, workers := range map[string]int{"worker in up": 0, "worker processes": 2} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			file := promptsFile(t, scenarios.MixedPrompts(320))
			want := undisturbed(t, file)
			s := serveSlowly(t, 60*time.Millisecond)
			i := install(t, s.url, workers, patientHealth+smallShards)
			id := i.submit(file)
			eventually(t, "half is answered", func() bool { return s.requests() > int(want.Summary.Completed)/2 })
			i.up.signal(syscall.SIGTERM)
			i.up.wantExit(0)
			p := do(t, 0, "status", "--json", "--dir", i.dir, string(id))
			var status struct {
				Phase string
				Items struct{ Done int }
			}
			if err := json.Unmarshal([]byte(p.stdoutText()), &status); err != nil {
				t.Fatal(err)
			}
			if status.Phase != "running" || status.Items.Done == 0 {
				t.Errorf("after the SIGTERM the run is %s with %d answers, want running with some", status.Phase, status.Items.Done)
			}
			asked := s.requests()
			i.start()
			i.awaitEnd(id)
			wantSame(t, i.outcome(id), want)
			// I5: a drain costs no finished item.
			if again := s.requests() - asked; again > int(want.Summary.Completed)-status.Items.Done {
				t.Errorf("%d requests were sent after the drain for %d items without an answer", again,
					int(want.Summary.Completed)-status.Items.Done)
			}
		})
	}
}

// C16: the run ends with the commit of its slowest request.
func TestC16RunEndsAfterItsLastAnswer(t *testing.T) {
	t.Parallel()
	i := install(t, serveSlowly(t, 300*time.Millisecond).url, 0, smallShards)
	id := i.submit(promptsFile(t, simplePrompts(9)))
	i.await(id, run.Completed)
	if o := i.outcome(id); o.Summary.Completed != 9 || len(o.ids(t)) != 9 || o.Errors != "" {
		t.Errorf("the run has the summary %+v, want 9 answers", o.Summary)
	}
	read(t, filepath.Join(i.bucket("runs/"+string(id)), record.SummaryFile))
}
