package api_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"rollout/functions/api"
	"rollout/shared/engine/commit"
	"rollout/shared/engine/identity"
	"rollout/shared/engine/interval"
	"rollout/shared/engine/run"
	"rollout/shared/engine/shard"
	"rollout/shared/record"
)

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
	st.Phase, st.Items, st.Shards, st.Complete, st.Next = run.Running, 1000, 10, true, 8
	st.Done = commit.Log{Set: interval.Of(interval.Range{Lo: 0, Hi: 4})}
	st.Counts = shard.Counts{OK: 390, Failed: 10, ByClass: map[string]int{"invalid_line": 7, "too_long": 3},
		PromptTokens: 4000, CompletionTokens: 8000, WastedTokens: 12}
	st.StartedAt = noon.Add(time.Second)
	return api.Progress{Manifest: manifestOf(runA), State: st, Held: 3}
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
			want, err := os.ReadFile(filepath.Join("testdata", "status_"+name+".json"))
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
	for name, c := range map[string]struct {
		change    func(*api.Progress)
		after     time.Duration // since the start
		rate, eta *float64
	}{
		"running":                  {func(*api.Progress) {}, 40 * time.Second, num(10), num(60)},
		"not all planned: no eta":  {func(p *api.Progress) { p.State.Complete = false }, 40 * time.Second, num(10), nil},
		"nothing settled":          {func(p *api.Progress) { p.State.Counts = shard.Counts{} }, 40 * time.Second, nil, nil},
		"not started":              {func(p *api.Progress) { p.State.StartedAt = time.Time{} }, 40 * time.Second, nil, nil},
		"a clock that runs behind": {func(*api.Progress) {}, -time.Second, nil, nil},
		"paused":                   {func(p *api.Progress) { p.State.Phase = run.Paused }, 40 * time.Second, nil, nil},
		"ending":                   {func(p *api.Progress) { p.State.Phase = run.Ending }, 40 * time.Second, nil, nil},
		"ended: over all its time": {func(p *api.Progress) {
			p.State.Phase, p.State.EndedAt = run.Stopped, p.State.StartedAt.Add(100*time.Second)
		}, time.Hour, num(4), nil},
		"more settled than planned": {func(p *api.Progress) { p.State.Items = 100 }, 40 * time.Second, num(10), num(0)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := midway()
			c.change(&p)
			s := api.StatusOf(p, noon.Add(time.Second+c.after))
			if d := cmp.Diff(c.rate, s.Rate); d != "" {
				t.Errorf("rate (-want +got):\n%s", d)
			}
			if d := cmp.Diff(c.eta, s.ETASeconds); d != "" {
				t.Errorf("eta (-want +got):\n%s", d)
			}
		})
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
