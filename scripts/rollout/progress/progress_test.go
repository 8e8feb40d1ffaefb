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

	"rollout/functions/api"
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

func running(settled uint64) api.Status {
	return api.Status{Run: runA, Name: "nightly", Pool: "default", Phase: run.Running, Items: api.Items{Total: 1000, Done: settled, Planned: true}}
}

func TestMeterFollowsTheLastHalfMinute(t *testing.T) {
	t.Parallel()
	var m progress.RateEstimator
	var p progress.Pace
	for s := range 60 { // 5 items/s for a minute
		p = m.Add(running(uint64(5*s)), noon.Add(time.Duration(s)*time.Second))
	}
	if p.Rate == nil || *p.Rate < 4.9 || *p.Rate > 5.1 {
		t.Fatalf("rate %v, want 5", p.Rate)
	}
	for s := range 40 { // then 10 items/s
		p = m.Add(running(uint64(300+10*s)), noon.Add(time.Duration(60+s)*time.Second))
	}
	if p.Rate == nil || *p.Rate < 9.9 || *p.Rate > 10.1 {
		t.Fatalf("rate %v, want 10: the first minute is over", p.Rate)
	}
	if p.ETASeconds == nil || *p.ETASeconds < 30 || *p.ETASeconds > 32 {
		t.Errorf("eta %v, want (1000-690)/10", p.ETASeconds)
	}
}

func TestMeterFallsBackOnTheAverage(t *testing.T) {
	t.Parallel()
	average, eta := 7.0, 70.0
	known := func(settled uint64) api.Status {
		s := running(settled)
		s.Rate, s.ETASeconds = &average, &eta
		return s
	}
	for name, c := range map[string]struct {
		first, second api.Status
		after         time.Duration
	}{
		"too soon to tell":     {known(10), known(20), time.Second},
		"nothing came in":      {known(10), known(10), 20 * time.Second},
		"counts run backwards": {known(20), known(10), 20 * time.Second},
		"time runs backwards":  {known(10), known(20), -20 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var m progress.RateEstimator
			m.Add(c.first, noon)
			if d := cmp.Diff(progress.Pace{Rate: &average, ETASeconds: &eta}, m.Add(c.second, noon.Add(c.after))); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
		})
	}
}

func TestWords(t *testing.T) {
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
		{progress.FormatRate(f(1234.5)), "1,234/s"},
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

func TestOutcome(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		phase         run.Phase
		total, failed uint64
		message       string
		want          string // "" is well
	}{
		"all answered":   {run.Completed, 10, 0, "", ""},
		"some failed":    {run.CompletedWithErrors, 10, 3, "", "3 of 10 items failed (see D/bucket/runs/x/errors.jsonl)"},
		"an empty input": {run.Completed, 0, 0, "", "has no items"},
		"stopped":        {run.Stopped, 10, 3, "", "ended as stopped"},
		"refused":        {run.Failed, 0, 0, "no pool serves it", "ended as failed: no pool serves it"},
		"over budget":    {run.OverBudget, 10, 9, "the token budget is used up", "ended as over budget: the token"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := progress.Outcome(api.Status{Run: runA, Phase: c.phase, Message: c.message, Errors: "runs/x/errors.jsonl",
				Items: api.Items{Total: c.total, Failed: c.failed}}, progress.ObjectPathIn("D/bucket"))
			if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}

// story is a run as its followers see it, one status a look.
type story struct {
	looks []func() (api.Status, error)
}

func (s *story) Show(context.Context, identity.RunID) (api.Status, error) {
	look := s.looks[0]
	if len(s.looks) > 1 {
		s.looks = s.looks[1:]
	}
	return look()
}

func is(st api.Status) func() (api.Status, error) {
	return func() (api.Status, error) { return st, nil }
}

func fails(kind fault.Kind, text string) func() (api.Status, error) {
	return func() (api.Status, error) { return api.Status{}, fault.New(kind, "%s", text) }
}

func many(n int, look func() (api.Status, error)) (out []func() (api.Status, error)) {
	for range n {
		out = append(out, look)
	}
	return out
}

func TestFollowGoesOnUntilTheRunHasEnded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ended := running(1000)
		ended.Phase = run.Completed
		s := &story{looks: []func() (api.Status, error){
			fails(fault.NotFound, "not yet"), is(running(0)), fails(fault.Unavailable, "the disk is busy"), is(running(500)), is(ended)}}
		var out bytes.Buffer
		st, err := progress.Follower{Source: s, View: progress.NewView(&out, clock.System{}), Clock: clock.System{}}.Follow(t.Context(), runA)
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
		s := &story{}
		for i := range 4*12 + 1 { // 12 s
			s.looks = append(s.looks, is(running(uint64(10*i))))
		}
		ended := running(1000)
		ended.Phase = run.Completed
		s.looks = append(s.looks, is(ended))
		var out bytes.Buffer
		if _, err := (progress.Follower{Source: s, View: progress.NewView(&out, clock.System{}), Clock: clock.System{}}).Follow(t.Context(), runA); err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(out.String(), " running "); n != 3 || !strings.Contains(out.String(), "40.0/s ETA 20s") {
			t.Errorf("%d lines while running, want 3 with pace:\n%s", n, &out)
		}
	})
}

func TestFollowSaysWhyNothingHappens(t *testing.T) {
	t.Parallel()
	held := func(ph run.Phase, text, remedy string) api.Status {
		s := running(10)
		s.Phase, s.Blockers = ph, []api.Blocker{{Text: text, Remedy: remedy}, {Text: "something else"}}
		return s
	}
	idle := held(run.Running, "no worker of pool default is alive", "start `rollout up`")
	paused := held(run.Paused, "paused: prompts/x.jsonl is gone", "`rollout resume X` lets it go on")
	ended := running(1000)
	ended.Phase = run.Completed
	const forTenSeconds = 4*10 + 1
	var away []func() (api.Status, error)
	for n := range 4 * 40 {
		away = append(away, is(held(run.Running, fmt.Sprintf("the inference server has been away for %ds", n/4), "start the server")))
	}
	for name, c := range map[string]struct {
		looks []func() (api.Status, error)
		want  string // "" is nothing
	}{
		"nobody takes it up":   {many(forTenSeconds, fails(fault.NotFound, "no run")), "nobody has taken the run up yet"},
		"taken up in time":     {many(forTenSeconds-1, fails(fault.NotFound, "no run")), ""},
		"no worker":            {many(forTenSeconds, is(idle)), "no worker of pool default is alive (start `rollout up`)"},
		"none for a moment":    {many(forTenSeconds-1, is(idle)), ""},
		"an engine is away":    {away, "the inference server has been away for 10s (start the server)"},
		"a slow worker":        {many(forTenSeconds, is(running(10))), ""},
		"paused, and says why": {many(2, is(paused)), "paused: prompts/x.jsonl is gone (`rollout resume X` lets it go on)"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := &story{looks: append(c.looks, is(ended))}
				var v notes
				if _, err := (progress.Follower{Source: s, View: &v, Clock: clock.System{}}).Follow(t.Context(), runA); err != nil {
					t.Fatal(err)
				}
				if c.want == "" && len(v) > 0 || c.want != "" && (len(v) != 1 || v[0] != c.want && !strings.Contains(v[0], c.want)) {
					t.Errorf("notes %q, want %q once", v, c.want)
				}
			})
		})
	}
}

// notes is a View that keeps what was noted.
type notes []string

func (n *notes) Update(api.Status, progress.Pace) {}
func (n *notes) Note(text string)                 { *n = append(*n, text) }
func (n *notes) Close()                           {}

func TestFollowAsksOnceAboutARunThatNobodyTakesUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ended := running(1000)
		ended.Phase = run.Completed
		looks := append(many(60, fails(fault.NotFound, "not yet")), is(ended))
		var v notes
		began, asked := time.Now(), time.Duration(0)
		f := progress.Follower{Source: &story{looks: looks}, View: &v, Clock: clock.System{}, Every: 2 * time.Second, Patience: 30 * time.Second,
			OnNotStarted: func(context.Context) string { asked = time.Since(began); return "the stack was told once more" }}
		if _, err := f.Follow(t.Context(), runA); err != nil {
			t.Fatal(err)
		}
		if asked != 30*time.Second || len(v) != 1 || time.Since(began) != 2*time.Minute {
			t.Errorf("asked after %v, said %q, ended after %v", asked, v, time.Since(began))
		}
	})
}

func TestFollowEndsWithItsContextAndOnFaults(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		_, err := progress.Follower{Source: &story{looks: many(1, is(running(1)))}, View: new(notes), Clock: clock.System{}}.Follow(ctx, runA)
		if !fault.Is(err, fault.Canceled) || !strings.Contains(err.Error(), "which goes on") {
			t.Errorf("got %v", err)
		}
		_, err = progress.Follower{Source: &story{looks: many(1, fails(fault.Corrupt, "document run/x"))}, View: new(notes), Clock: clock.System{}}.Follow(t.Context(), runA)
		if !fault.Is(err, fault.Corrupt) {
			t.Errorf("got %v", err)
		}
	})
}

func TestClosingShowsWhatBecameOfARun(t *testing.T) {
	t.Parallel()
	rate, ended := 25.0, noon.Add(40*time.Second)
	s := api.Status{Run: runA, Name: "nightly", Phase: run.CompletedWithErrors, Items: api.Items{Total: 1000, Done: 990, Failed: 10},
		FailedByClass: map[string]int{"too_long": 3, "invalid_line": 7}, Tokens: api.Tokens{Prompt: 4000, Completion: 8000, Wasted: 12},
		Rate: &rate, StartedAt: &noon, EndedAt: &ended,
		Outputs: "runs/x/completions.jsonl", Errors: "runs/x/errors.jsonl", Summary: "runs/x/summary.json"}
	bucket := memory.NewBucket(clock.System{})
	rows := `{"id":"a","messages":[{"role":"system","content":"short"},{"role":"user","content":"p"}],"completion":"The sky\nis \u001b[31mblue"}
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
  tokens      4,000 in, 8,000 out, 12 wasted
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

func TestClosingOfARefusedRunHasNoFiles(t *testing.T) {
	t.Parallel()
	s := api.Status{Run: runA, Name: "nightly", Phase: run.Failed, Message: "no pool serves the model", Outputs: "runs/x/completions.jsonl"}
	var out bytes.Buffer
	if err := progress.WriteSummary(t.Context(), &out, s, memory.NewBucket(clock.System{}), progress.ObjectPathIn("/data")); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff("run "+string(runA)+" (nightly) failed\n  because     no pool serves the model\n", out.String()); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	if err := progress.WriteSummary(t.Context(), failing{}, s, memory.NewBucket(clock.System{}), progress.ObjectPathIn("/data")); err == nil {
		t.Error("a writer's error is lost")
	}
}

type failing struct{}

func (failing) Write([]byte) (int, error) { return 0, errors.New("closed") }
