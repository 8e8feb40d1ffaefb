package progress_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"rollout/functions/status"
	"rollout/scripts/rollout/progress"
	"rollout/shared/blob"
	"rollout/shared/clock"
	"rollout/shared/core/identity"
	"rollout/shared/core/run"
	"rollout/shared/fault"
	"rollout/shared/memory"
)

const runA = identity.RunID("01JD2ZQ4T5W0M1X9YB7R3K8CVE")

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// running returns the status of a running run with that many of 1000 items done.
func running(done uint64) status.Status {
	return status.Status{Run: runA, Name: "nightly", Pool: "default", Phase: run.Running,
		Items: status.Items{Total: 1000, Done: done, Planned: true}}
}

func TestRateCoversTheLastHalfMinute(t *testing.T) {
	t.Parallel()
	var e progress.RateEstimator
	var p progress.Pace
	for s := range 60 { // 5 items/s for a minute
		p = e.Add(running(uint64(5*s)), noon.Add(time.Duration(s)*time.Second))
	}
	if p.Rate == nil || *p.Rate < 4.9 || *p.Rate > 5.1 {
		t.Fatalf("rate %v, want 5", p.Rate)
	}
	for s := range 40 { // then 10 items/s
		p = e.Add(running(uint64(300+10*s)), noon.Add(time.Duration(60+s)*time.Second))
	}
	if p.Rate == nil || *p.Rate < 9.9 || *p.Rate > 10.1 {
		t.Fatalf("rate %v, want 10 without the first minute", p.Rate)
	}
	if p.ETASeconds == nil || *p.ETASeconds < 30 || *p.ETASeconds > 32 {
		t.Errorf("eta %v, want (1000-690)/10", p.ETASeconds)
	}
}

func TestRateFallsBackToTheAverage(t *testing.T) {
	t.Parallel()
	average, eta := 7.0, 70.0
	withAverage := func(done uint64) status.Status {
		s := running(done)
		s.Rate, s.ETASeconds = &average, &eta
		return s
	}
	for name, c := range map[string]struct {
		first, second status.Status
		after         time.Duration
	}{
		"samples too close":    {withAverage(10), withAverage(20), time.Second},
		"no progress":          {withAverage(10), withAverage(10), 20 * time.Second},
		"counts run backwards": {withAverage(20), withAverage(10), 20 * time.Second},
		"time runs backwards":  {withAverage(10), withAverage(20), -20 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var e progress.RateEstimator
			e.Add(c.first, noon)
			want := progress.Pace{Rate: &average, ETASeconds: &eta}
			if d := cmp.Diff(want, e.Add(c.second, noon.Add(c.after))); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
		})
	}
}

func TestFormat(t *testing.T) {
	t.Parallel()
	f := func(x float64) *float64 { return &x }
	for _, c := range []struct{ got, want string }{
		{progress.FormatDuration(850 * time.Millisecond), "850ms"},
		{progress.FormatDuration(42 * time.Second), "42s"},
		{progress.FormatDuration(59*time.Second + 600*time.Millisecond), "1m00s"},
		{progress.FormatDuration(3*time.Minute + 5*time.Second), "3m05s"},
		{progress.FormatDuration(2*time.Hour + 10*time.Minute), "2h10m"},
		{progress.FormatDuration(76 * time.Hour), "3d04h"},
		{progress.FormatDuration(-time.Hour), "0s"},
		{progress.FormatRate(nil), "-"},
		{progress.FormatRate(f(1234.5)), "1,235/s"},
		{progress.FormatRate(f(12.34)), "12.3/s"},
		{progress.FormatRate(f(0.0521)), "0.052/s"},
		{progress.FormatETA(nil), "-"},
		{progress.FormatETA(f(65)), "1m05s"},
		{progress.FormatETA(f(0.5)), "1s"},
		{progress.FormatETA(f(0)), "0s"},
		{progress.FormatETA(f(1e300)), "-"},
		{progress.Percent(0, 0), "-"},
		{progress.Percent(999, 1000), "99%"},
		{progress.Percent(5, 3), "100%"},
		{progress.Count(1234567), "1,234,567"},
		{progress.FormatPhase(run.CompletedWithErrors), "completed with errors"},
		{progress.SanitizeLine("a\x1b[2Jb\nc\u202ed", 99), "a [2Jb c d"},
		{progress.SanitizeLine("\xff", 99), "\uFFFD"},
		{progress.SanitizeLine("日本語日本語", 7), "日本語…"},
	} {
		if c.got != c.want {
			t.Errorf("got %q, want %q", c.got, c.want)
		}
	}
}

func TestRemediesAreNotNestedInBrackets(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ text, remedy, want string }{
		{"no worker is alive", "start `rollout up`", "no worker is alive (start `rollout up`)"},
		{"paused: refused (mend it)", "`rollout resume X` helps", "paused: refused (mend it); `rollout resume X` helps"},
		{"slow", "allow more (in_flight)", "slow; allow more (in_flight)"},
		{"paused", "", "paused"},
	} {
		if got := progress.WithRemedy(c.text, c.remedy); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}

func TestOutcome(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		phase         run.Phase
		total, failed uint64
		message       string
		want          string // part of the error; "" expects none
	}{
		"all answered":   {run.Completed, 10, 0, "", ""},
		"some failed":    {run.CompletedWithErrors, 10, 3, "", "3 of 10 items failed (see D/bucket/runs/x/errors.jsonl)"},
		"all but pruned": {run.Completed, 10, 3, "", ""},
		"an empty input": {run.Completed, 0, 0, "", "has no items"},
		"stopped":        {run.Stopped, 10, 3, "", "ended as stopped"},
		"refused":        {run.Failed, 0, 0, "no pool serves it", "ended as failed: no pool serves it"},
		"over budget":    {run.OverBudget, 10, 9, "the token budget is used up", "ended as over budget: the token"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := progress.Outcome(status.Status{Run: runA, Phase: c.phase, Message: c.message, Errors: "runs/x/errors.jsonl",
				Items: status.Items{Total: c.total, Failed: c.failed}}, progress.ObjectPathIn("D/bucket"))
			if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}

// A retry asks items again, and corrects no lines.
func TestOutcomeAdvisesARetryWhereItHelps(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		phase            run.Phase
		unanswered, left uint64
		classes          map[string]int
		want             string
	}{
		"failed at the server": {run.CompletedWithErrors, 0, 3, map[string]int{"engine": 3},
			"; `rollout retry " + string(runA) + "` asks them again)"},
		"broken lines": {run.CompletedWithErrors, 0, 3, map[string]int{"invalid_line": 2, "duplicate_id": 1},
			"; correct the lines, and submit them in a file of their own)"},
		"both": {run.CompletedWithErrors, 0, 3, map[string]int{"invalid_line": 2, "timeout": 1},
			"; `rollout retry " + string(runA) + "` asks 1 item again: the lines"},
		"stopped": {run.Stopped, 7, 7, map[string]int{"canceled": 7},
			"(`rollout retry " + string(runA) + " --unanswered` asks what is left)"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := progress.OutcomeOfInstalled(status.Status{Run: runA, Phase: c.phase, FailedByClass: c.classes,
				Items: status.Items{Total: 10, Failed: c.left, Unanswered: c.unanswered}}, progress.ObjectPathIn("D"))
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}

// reply is one answer of a Source.
type reply func() (status.Status, error)

// scriptedSource gives its replies in order, and then repeats the last.
type scriptedSource struct {
	replies []reply
}

func (s *scriptedSource) Show(context.Context, identity.RunID) (status.Status, error) {
	next := s.replies[0]
	if len(s.replies) > 1 {
		s.replies = s.replies[1:]
	}
	return next()
}

func is(st status.Status) reply {
	return func() (status.Status, error) { return st, nil }
}

func fails(kind fault.Kind, text string) reply {
	return func() (status.Status, error) { return status.Status{}, fault.New(kind, "%s", text) }
}

func repeat(n int, r reply) (out []reply) {
	for range n {
		out = append(out, r)
	}
	return out
}

// follow follows runA with default settings.
func follow(ctx context.Context, v progress.View, replies ...reply) (status.Status, error) {
	f := progress.Follower{Source: &scriptedSource{replies}, View: v, Clock: clock.System{}}
	return f.Follow(ctx, runA)
}

func TestFollowReturnsWhenTheRunHasEnded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ended := running(1000)
		ended.Phase = run.Completed
		var out bytes.Buffer
		st, err := follow(t.Context(), progress.NewView(&out, clock.System{}, false), fails(fault.NotFound, "not yet"),
			is(running(0)), fails(fault.Unavailable, "the disk is busy"), is(running(500)), is(ended))
		if err != nil || st.Phase != run.Completed {
			t.Fatalf("%s, %v", st.Phase, err)
		}
		want := string(runA) + " running 0/1,000 0%\nthe disk is busy\n" + string(runA) + " completed 1,000/1,000 100%\n"
		if d := cmp.Diff(want, out.String()); d != "" {
			t.Errorf("(-want +got):\n%s", d)
		}
	})
}

func TestFollowWritesALineEveryFiveSeconds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var replies []reply
		for i := range 4*12 + 1 { // 12 s
			replies = append(replies, is(running(uint64(10*i))))
		}
		ended := running(1000)
		ended.Phase = run.Completed
		var out bytes.Buffer
		view := progress.NewView(&out, clock.System{}, false)
		if _, err := follow(t.Context(), view, append(replies, is(ended))...); err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(out.String(), " running "); n != 3 || !strings.Contains(out.String(), "40.0/s ETA 20s") {
			t.Errorf("%d lines while running, want 3 with pace:\n%s", n, &out)
		}
	})
}

func TestFollowNotesWhatBlocksARun(t *testing.T) {
	t.Parallel()
	blocked := func(ph run.Phase, text, remedy string) status.Status {
		s := running(10)
		s.Phase, s.Blockers = ph, []status.Blocker{{Text: text, Remedy: remedy}, {Text: "something else"}}
		return s
	}
	noWorker := blocked(run.Running, "no worker is alive", "start `rollout up`")
	paused := blocked(run.Paused, "paused: x.jsonl is gone", "continue with `rollout resume X`")
	notFound := fails(fault.NotFound, "no run")
	ended := running(1000)
	ended.Phase = run.Completed
	const tenSeconds = 4*10 + 1 // polls
	var serverDown []reply
	for n := range 4 * 40 {
		text := fmt.Sprintf("the inference server has been down for %ds", n/4)
		serverDown = append(serverDown, is(blocked(run.Running, text, "start the server")))
	}
	for name, c := range map[string]struct {
		replies []reply
		want    string // "" expects no note
	}{
		"never starts":              {repeat(tenSeconds, notFound), "the run has not started yet"},
		"starts before 10 s":        {repeat(tenSeconds-1, notFound), ""},
		"no worker":                 {repeat(tenSeconds, is(noWorker)), "no worker is alive (start `rollout up`)"},
		"no worker for a moment":    {repeat(tenSeconds-1, is(noWorker)), ""},
		"the server is down":        {serverDown, "the inference server has been down for 10s (start the server)"},
		"slow but not blocked":      {repeat(tenSeconds, is(running(10))), ""},
		"paused: noted immediately": {repeat(2, is(paused)), "paused: x.jsonl is gone (continue with `rollout resume X`)"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var v recordedView
				if _, err := follow(t.Context(), &v, append(c.replies, is(ended))...); err != nil {
					t.Fatal(err)
				}
				if c.want == "" && len(v) > 0 || c.want != "" && (len(v) != 1 || !strings.Contains(v[0], c.want)) {
					t.Errorf("notes %q, want %q once", v, c.want)
				}
			})
		})
	}
}

// recordedView is a View that records its notes.
type recordedView []string

func (v *recordedView) Update(status.Status, progress.Pace) {}
func (v *recordedView) Note(text string)                    { *v = append(*v, text) }
func (v *recordedView) Close()                              {}

func TestFollowCallsOnNotStartedOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ended := running(1000)
		ended.Phase = run.Completed
		replies := append(repeat(60, fails(fault.NotFound, "not yet")), is(ended))
		var v recordedView
		start, called := time.Now(), time.Duration(0)
		f := progress.Follower{
			Source: &scriptedSource{replies}, View: &v, Clock: clock.System{}, Every: 2 * time.Second,
			OnNotStarted: func(context.Context) string { called = time.Since(start); return "the upload was announced again" },
			Patience:     30 * time.Second,
		}
		if _, err := f.Follow(t.Context(), runA); err != nil {
			t.Fatal(err)
		}
		if called != 30*time.Second || len(v) != 1 || time.Since(start) != 2*time.Minute {
			t.Errorf("called after %v, noted %q, returned after %v", called, v, time.Since(start))
		}
	})
}

func TestFollowReturnsOnCancellationAndPermanentErrors(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		_, err := follow(ctx, new(recordedView), is(running(1)))
		if !fault.Is(err, fault.Canceled) || !strings.Contains(err.Error(), "which continues") {
			t.Errorf("got %v", err)
		}
		_, err = follow(t.Context(), new(recordedView), fails(fault.Corrupt, "document run/x"))
		if !fault.Is(err, fault.Corrupt) {
			t.Errorf("got %v", err)
		}
	})
}

func TestSummaryShowsTheResultOfARun(t *testing.T) {
	t.Parallel()
	rate, ended := 25.0, noon.Add(40*time.Second)
	s := status.Status{
		Run: runA, Name: "nightly", Phase: run.CompletedWithErrors,
		Items:         status.Items{Total: 1000, Done: 990, Failed: 10},
		FailedByClass: map[string]int{"too_long": 3, "invalid_line": 7},
		Tokens:        status.Tokens{Prompt: 4000, Completion: 8000, Wasted: 12, WastedEstimated: 5},
		Rate:          &rate, StartedAt: &noon, EndedAt: &ended,
		Outputs: "runs/x/completions.jsonl", Errors: "runs/x/errors.jsonl", Summary: "runs/x/summary.json",
	}
	bucket := memory.NewBucket(clock.System{})
	rows := `{"id":"a","messages":[{"role":"system","content":"short"},{"role":"user","content":"p"}],` +
		`"completion":"The sky\nis \u001b[31mblue"}
{"id":"b","custom_id":"req-2","response":{"body":{"choices":[{"message":{"content":"Hello"}}]}}}
{"recordId":"c","modelOutput":{}}
{"id":"d","completion":"never shown"}
`
	if _, err := bucket.Put(t.Context(), s.Outputs, strings.NewReader(rows), blob.PutOptions{}); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := progress.WriteSummary(t.Context(), &out, s, bucket, progress.ObjectPathIn("/data/bucket")); err != nil {
		t.Fatal(err)
	}
	want := `run 01JD2ZQ4T5W0M1X9YB7R3K8CVE (nightly) completed with errors: 990 of 1,000 items answered in 40s, 25.0/s
  failed      10 (7 invalid_line, 3 too_long)
  tokens      4,000 in, 8,000 out, 12 wasted (5 of them estimated)
  completions /data/bucket/runs/x/completions.jsonl
  errors      /data/bucket/runs/x/errors.jsonl
  summary     /data/bucket/runs/x/summary.json
first completions:
  a  p → The sky is  [31mblue
  req-2  Hello
  {"recordId":"c","modelOutput":{}}
`
	if d := cmp.Diff(want, out.String()); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

func TestSummaryOfARefusedRunHasNoFiles(t *testing.T) {
	t.Parallel()
	s := status.Status{Run: runA, Name: "nightly", Phase: run.Failed, Message: "no pool serves the model",
		Outputs: "runs/x/completions.jsonl"}
	bucket, path := memory.NewBucket(clock.System{}), progress.ObjectPathIn("/data")
	var out bytes.Buffer
	if err := progress.WriteSummary(t.Context(), &out, s, bucket, path); err != nil {
		t.Fatal(err)
	}
	want := "run " + string(runA) + " (nightly) failed\n  reason      no pool serves the model\n"
	if d := cmp.Diff(want, out.String()); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	if err := progress.WriteSummary(t.Context(), brokenWriter{}, s, bucket, path); err == nil {
		t.Error("the writer's error is lost")
	}
}

type brokenWriter struct{}

func (brokenWriter) Write([]byte) (int, error) { return 0, errors.New("closed") }
