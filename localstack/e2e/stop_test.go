package e2e

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"rollout/shared/core/run"
	"rollout/shared/record"
)

// C11: a run that is stopped with requests in flight has each id in exactly one
// file, and the answers that came are the undisturbed ones.
func TestStopWithFiveInFlight(t *testing.T) {
	t.Parallel()
	file := promptsFile(t, simple(25))
	want := undisturbed(t, file)
	s := serveSlowly(t, 150*time.Millisecond)
	i := install(t, s.url, 0, strings.Replace(smallBites, "in_flight = 4", "in_flight = 5", 1))
	for range 3 {
		from := s.requests()
		id := i.submit(file)
		eventually(t, "a few are answered and five are asked", func() bool {
			return s.requests() > from+8 && s.answering() == 5
		})
		i.steer("stop", id)
		i.await(id, run.Stopped)
		if n := wantCutShort(t, i.outcome(id), want, "canceled"); n == 0 {
			t.Error("nothing that was finished is kept")
		}
	}
}

// C12: stopped before anything is dispatched, or expired before it is planned,
// every line is an error line under the user's own id.
func TestEndBeforeTheFirstDispatch(t *testing.T) {
	t.Parallel()
	file := promptsFile(t, simple(40))
	want := undisturbed(t, file)
	s := serveSlowly(t, 50*time.Millisecond)
	t.Run("stop", func(t *testing.T) {
		t.Parallel()
		i := install(t, s.url, 0, smallBites)
		id := i.submit(file)
		eventually(t, "the run can be stopped", func() bool {
			code, _ := ask(t, "POST", i.url+"/v1/runs/"+string(id)+"/stop", "")
			return code < 300
		})
		i.await(id, run.Stopped)
		wantCutShort(t, i.outcome(id), want, "canceled")
	})
	t.Run("deadline", func(t *testing.T) {
		t.Parallel()
		i := install(t, s.url, 0, smallBites+"deadline = \"1ms\"\n")
		id := i.submit(file)
		i.await(id, run.Expired)
		wantCutShort(t, i.outcome(id), want, "expired")
	})
}

// C14: a short window and a slow server: what was finished is kept, the rest
// has expired, and the one who waits is told.
func TestDeadlineKeepsFinishedWork(t *testing.T) {
	t.Parallel()
	file := promptsFile(t, mixedPrompts(160))
	want := undisturbed(t, file)
	i := install(t, serveSlowly(t, 200*time.Millisecond).url, 2, smallBites+"deadline = \"1500ms\"\n")
	p := do(t, 1, "submit", "--wait", "--dir", i.dir, file)
	p.wantStderr("ended as expired")
	s := i.onlyRunOf("prompts.jsonl")
	if s.Phase != run.Expired {
		t.Errorf("the run is %s", s.Phase)
	}
	if n := wantCutShort(t, i.outcome(s.Run), want, "expired"); n == 0 {
		t.Error("nothing that was finished is kept")
	}
}

// A run is stopped while its workers are killed: I1 holds all the same.
func TestStopAmongKills(t *testing.T) {
	t.Parallel()
	file := promptsFile(t, mixedPrompts(320))
	want := undisturbed(t, file)
	m := newProcessKiller(t, 7)
	for range 3 {
		id := m.submit(file)
		m.killRandomly(id, want.summary.Completed)
		m.steer("stop", id)
		m.killWorker(id)
		m.await(id, run.Stopped)
		wantCutShort(t, m.outcome(id), want, "canceled")
	}
}

// C17: SIGTERM at half ends `rollout up` in order: what is committed can be
// asked for while nothing runs, and the next one finishes the run.
func TestSIGTERMAtHalf(t *testing.T) {
	t.Parallel()
	for name, workers := range map[string]int{"worker in up": 0, "worker processes": 2} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			file := promptsFile(t, mixedPrompts(320))
			want := undisturbed(t, file)
			s := serveSlowly(t, 20*time.Millisecond)
			i := install(t, s.url, workers, smallBites)
			id := i.submit(file)
			eventually(t, "half is answered", func() bool { return s.requests() > int(want.summary.Completed)/2 })
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
				t.Errorf("after the SIGTERM the run is %s with %d answers", status.Phase, status.Items.Done)
			}
			asked := s.requests()
			i.start()
			i.ends(id)
			wantSame(t, i.outcome(id), want)
			// I5: a drain costs no finished item.
			if again := s.requests() - asked; again > int(want.summary.Completed)-status.Items.Done {
				t.Errorf("%d questions were asked after the drain, %d items had no answer", again, int(want.summary.Completed)-status.Items.Done)
			}
		})
	}
}

// C16: the slowest request is the last; the run ends with its commit.
func TestTheRunEndsAfterItsLastAnswer(t *testing.T) {
	t.Parallel()
	i := install(t, serveSlowly(t, 300*time.Millisecond).url, 0, smallBites)
	id := i.submit(promptsFile(t, simple(9)))
	i.await(id, run.Completed)
	if o := i.outcome(id); o.summary.Completed != 9 || len(o.ids(t)) != 9 || o.errors != "" {
		t.Errorf("the run left %+v", o.summary)
	}
	read(t, filepath.Join(i.bucket("runs/"+string(id)), record.SummaryFile))
}
