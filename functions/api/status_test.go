package api_test

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"rollout/functions/api"
	"rollout/shared/core/commit"
	"rollout/shared/core/health"
	"rollout/shared/core/identity"
	"rollout/shared/core/interval"
	"rollout/shared/core/run"
	"rollout/shared/core/shard"
	"rollout/shared/record"
)

var rewrite = flag.Bool("rewrite", false, "write the golden files anew")

const runA = identity.RunID("01JD2ZQ4T5W0M1X9YB7R3K8CVE")

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func manifestOf(id identity.RunID) record.Manifest {
	return record.Manifest{
		Schema: record.Schema, Run: id, Name: "nightly", Kind: "batch", CreatedAt: noon,
		Inputs: []record.Input{{Key: "prompts/nightly.jsonl", Version: "v1", Size: 10}}, ModelURI: "mock", Pool: "default",
	}
}

// midway is a run of 1,000 items in 10 shards, 4 of which are done.
func midway() api.Progress {
	st := run.New(runA)
	st.Phase, st.Items, st.Shards, st.Complete, st.NextShard = run.Running, 1000, 10, true, 8
	st.Done = commit.CommitLog{Set: interval.Of(interval.Range{Lo: 0, Hi: 4})}
	st.Counts = shard.Counts{OK: 390, Failed: 10, ByClass: map[string]int{"invalid_line": 7, "too_long": 3},
		PromptTokens: 4000, CompletionTokens: 8000, WastedTokens: 12}
	st.StartedAt, st.SavedAt = noon.Add(time.Second), noon.Add(40*time.Second)
	return api.Progress{Manifest: manifestOf(runA), State: st, Workers: []api.WorkerStatus{worker(4, 5, 6)}}
}

// worker is a living one that holds shards of run A, half of them answered,
// and has not said how fast it is.
func worker(shards ...int) api.WorkerStatus {
	w := api.WorkerStatus{Worker: "w", Pool: "default", State: health.Ready, Alive: true, Engine: api.EngineReady, InFlight: 64, StartedAt: noon.Add(35 * time.Second)}
	for _, n := range shards {
		w.Holds = append(w.Holds, health.HeldShard{Run: runA, Shard: n, Attempt: 1, Items: 100, Rows: 50})
	}
	return w
}

func TestStatusJSONIsAContract(t *testing.T) {
	t.Parallel()
	done := midway()
	done.State.Phase, done.State.Reason = run.CompletedWithErrors, run.ReasonDone
	done.State.EndedAt = noon.Add(101 * time.Second)
	for name, p := range map[string]api.Progress{
		"new":     {Manifest: manifestOf(runA), State: run.New(runA)},
		"running": midway(),
		"ended":   done,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := json.MarshalIndent(api.StatusOf(p, noon.Add(41*time.Second)), "", "  ")
			if err != nil {
				t.Fatal(err)
			}
			golden := filepath.Join("testdata", "status_"+name+".json")
			if *rewrite {
				if err := os.WriteFile(golden, append(got, '\n'), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(string(want), string(got)+"\n"); d != "" {
				t.Errorf("the contract changed (-want +got):\n%s", d)
			}
		})
	}
}

func TestSpeed(t *testing.T) {
	t.Parallel()
	num := func(f float64) *float64 { return &f }
	says := func(p *api.Progress, rate float64) {
		p.Workers[0].Load = health.Load{Rows: 9, RowAt: noon, Rate: rate, TokenRate: 30 * rate}
	}
	for name, c := range map[string]struct {
		change            func(*api.Progress)
		after             time.Duration // since the start
		rate, tokens, eta *float64
	}{
		"since its start":          {func(*api.Progress) {}, 40 * time.Second, num(10), num(200), num(45)},
		"not all planned: no eta":  {func(p *api.Progress) { p.State.Complete = false }, 40 * time.Second, num(10), num(200), nil},
		"nothing settled":          {func(p *api.Progress) { p.State.Counts = shard.Counts{} }, 40 * time.Second, nil, nil, nil},
		"not started":              {func(p *api.Progress) { p.State.StartedAt = time.Time{} }, 40 * time.Second, nil, nil, nil},
		"a clock that runs behind": {func(*api.Progress) {}, -time.Second, nil, nil, nil},
		"paused":                   {func(p *api.Progress) { p.State.Phase = run.Paused }, 40 * time.Second, nil, nil, nil},
		"ending":                   {func(p *api.Progress) { p.State.Phase = run.Ending }, 40 * time.Second, nil, nil, nil},
		"nothing was saved lately": {func(*api.Progress) {}, 10 * time.Minute, nil, nil, nil},
		"ended: over all its time": {func(p *api.Progress) {
			p.State.Phase, p.State.EndedAt = run.Stopped, p.State.StartedAt.Add(100*time.Second)
		}, time.Hour, num(4), num(80), nil},
		"more settled than planned":       {func(p *api.Progress) { p.State.Items = 100 }, 40 * time.Second, num(10), num(200), num(0)},
		"what its worker says":            {func(p *api.Progress) { says(p, 30) }, 40 * time.Second, num(30), num(900), num(15)},
		"its worker says: nothing lately": {func(p *api.Progress) { says(p, 0) }, 40 * time.Second, num(0), num(0), nil},
		"a worker's share": {func(p *api.Progress) {
			says(p, 40)
			p.Workers[0].Holds = append(p.Workers[0].Holds, health.HeldShard{Run: runB, Shard: 1, Attempt: 1})
		}, 40 * time.Second, num(30), num(900), num(15)},
		"a dead worker says nothing": {func(p *api.Progress) {
			says(p, 40)
			p.Workers[0].Alive = false
		}, 40 * time.Second, num(10), num(200), num(60)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := midway()
			c.change(&p)
			s := api.StatusOf(p, noon.Add(time.Second+c.after))
			for what, pair := range map[string][2]*float64{"rate": {c.rate, s.Rate}, "token rate": {c.tokens, s.TokenRate}, "eta": {c.eta, s.ETASeconds}} {
				if d := cmp.Diff(pair[0], pair[1]); d != "" {
					t.Errorf("%s (-want +got):\n%s", what, d)
				}
			}
		})
	}
}

func TestWhatAnEndLeftUnansweredIsToldApart(t *testing.T) {
	t.Parallel()
	p := midway()
	p.State.Phase, p.State.EndedAt = run.Stopped, p.State.StartedAt.Add(100*time.Second)
	p.State.Counts = shard.Counts{OK: 390, Failed: 610, ByClass: map[string]int{"too_long": 10, "canceled": 600}}
	s := api.StatusOf(p, noon.Add(time.Hour))
	if s.Items.Failed != 610 || s.Items.Unanswered != 600 || s.Items.Committed() != 400 || *s.Rate != 4 {
		t.Errorf("%+v, settled %d, rate %v", s.Items, s.Items.Committed(), *s.Rate)
	}
}

func TestARefusedRunHasFailed(t *testing.T) {
	t.Parallel()
	m := manifestOf(runA)
	m.Refused = "prompts/nightly.toml:3: sampling.top_p: must be at most 1"
	s := api.StatusOf(api.Progress{Manifest: m, State: run.New(runA)}, noon.Add(time.Hour))
	if s.Phase != run.Failed || s.Message != m.Refused || s.EndedAt == nil || !s.EndedAt.Equal(noon) {
		t.Errorf("phase %s, message %q, ended %v", s.Phase, s.Message, s.EndedAt)
	}
}

func TestStatusKnowsThePlanBeforeCoordinateDoes(t *testing.T) {
	t.Parallel()
	p := api.Progress{Manifest: manifestOf(runA), State: run.New(runA), Plan: record.Plan{Schema: 1, Shards: 7, Items: 1792}}
	s := api.StatusOf(p, noon)
	if s.Items.Total != 1792 || s.Shards.Total != 7 || s.Items.Planned {
		t.Errorf("items %+v, shards %+v", s.Items, s.Shards)
	}
}
