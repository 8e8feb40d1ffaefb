package api_test

import (
	"strings"
	"testing"
	"time"

	"rollout/functions/api"
	"rollout/shared/config"
	"rollout/shared/core/health"
	"rollout/shared/core/run"
	"rollout/shared/record"
)

func TestARunSaysWhatHoldsItUp(t *testing.T) {
	t.Parallel()
	now := noon.Add(41 * time.Second)
	silent := func(d time.Duration) func(*api.Progress) {
		return func(p *api.Progress) {
			p.Workers[0].StartedAt = noon
			p.Workers[0].Load = health.Load{InFlight: 64, Rows: 9, RowAt: now.Add(-d), MedianMS: 5_000}
		}
	}
	in := func(ph run.Phase, message string) func(*api.Progress) {
		return func(p *api.Progress) { p.State.Phase, p.State.Message = ph, message }
	}
	aws := config.Cloud{Provider: config.ProviderAWS, Name: "acme"}
	for name, c := range map[string]struct {
		change func(*api.Progress)
		code   string // of the first; "" is none
		says   string // in its text or remedy
	}{
		"nothing":     {func(*api.Progress) {}, "", ""},
		"no function": {func(p *api.Progress) { p.State = run.New(runA) }, api.NotPickedUp, "for 41s start `rollout up`"},
		"an archive being unpacked": {func(p *api.Progress) {
			p.State, p.Manifest.Inputs[0].Packed = run.New(runA), "gzip"
		}, api.IsPlanning, "unpacked"},
		"a pause":              {in(run.Paused, "prompts/x.jsonl is gone"), api.IsPaused, "paused: prompts/x.jsonl is gone `rollout resume " + string(runA) + "`"},
		"a pause to come":      {in(run.Pausing, ""), api.IsPausing, "requests in flight may end"},
		"the end":              {in(run.Ending, ""), api.IsEnding, "until"},
		"its files":            {in(run.Finalizing, ""), api.IsEnding, "being written"},
		"an ended run":         {in(run.Completed, ""), "", ""},
		"the plan":             {func(p *api.Progress) { p.Plan.Problem = "no such archive" }, api.NoInput, "no such archive"},
		"planning":             {func(p *api.Progress) { p.State.Shards = 0; p.Plan.Total = 7 }, api.IsPlanning, "0 of 7 ranges"},
		"no worker":            {func(p *api.Progress) { p.Workers = nil }, api.NoWorker, "pool default is alive"},
		"workers of others":    {func(p *api.Progress) { p.Workers[0].Pool = "other" }, api.NoWorker, "pool default is alive"},
		"a worker that died":   {func(p *api.Progress) { p.Workers[0].Alive, p.Workers[0].HeartbeatAt = false, now.Add(-6*time.Second) }, api.LostWorker, "6s ago and holds 3 shards"},
		"one that died before": {func(p *api.Progress) { p.Workers[0].Alive, p.Workers[0].HeartbeatAt = false, now.Add(-time.Hour) }, api.NoWorker, ""},
		"an engine that is away": {func(p *api.Progress) {
			p.Workers[0].Engine, p.Workers[0].Load = api.EngineAway, health.Load{UnavailableReason: "connection refused", UnavailableSince: now.Add(-12 * time.Second)}
		}, api.NoEngine, "away for 12s: connection refused start the server"},
		"one of two engines": {func(p *api.Progress) {
			p.Workers = append(p.Workers, worker(7))
			p.Workers[1].Engine = api.EngineAway
		}, api.NoEngine, "of 1 of 2 workers"},
		"a drain":                       {func(p *api.Progress) { p.Workers[0].State = health.Draining }, api.AllDraining, "draining"},
		"other runs":                    {func(p *api.Progress) { p.Workers[0].Holds = []health.HeldShard{{Run: runB, Shard: 1, Attempt: 1}} }, api.BusyElsewhere, "other runs first"},
		"requests that take their time": {silent(19 * time.Second), "", ""},
		"a hanging engine":              {silent(21 * time.Second), api.Stalled, "no item was finished for 21s"},
		"one of two servers": {func(p *api.Progress) {
			p.Workers[0].Load.Servers = []health.Server{{Name: "http://a/v1", State: "closed"}, {Name: "http://b/v1", State: "half_open", LastError: "connection refused"}}
		}, api.NoServer, "1 of 2 inference servers get no requests: http://b/v1: connection refused start them again"},
		"servers that work": {func(p *api.Progress) {
			p.Workers[0].Load.Servers = []health.Server{{Name: "http://a/v1", State: "closed"}, {Name: "http://b/v1", State: "doubted"}}
		}, "", ""},
		"a cloud's function": {func(p *api.Progress) { p.State, p.Cloud = run.New(runA), aws }, api.NotPickedUp, "`aws logs tail /aws/lambda/acme-plan`"},
		"a cloud's function that starts": {func(p *api.Progress) {
			p.State, p.Cloud, p.Manifest.CreatedAt = run.New(runA), aws, now.Add(-20*time.Second)
		}, api.IsPlanning, "being cut"},
		"no machine of a cloud": {func(p *api.Progress) { p.Workers, p.Cloud = nil, aws }, api.NoWorker, "--auto-scaling-group-name acme-default`"},
		"no machine that could come up": {func(p *api.Progress) {
			p.Workers, p.Cloud, p.Fleet = nil, aws, record.Fleet{AbsentAt: now.Add(-time.Minute), Absent: "Max spot instance count exceeded"}
		}, api.NoWorker, "is alive; a machine could not come up 1m0s ago: Max spot instance count exceeded a machine takes"},
		"none long ago": {func(p *api.Progress) {
			p.Workers, p.Cloud, p.Fleet = nil, aws, record.Fleet{AbsentAt: now.Add(-time.Hour), Absent: "Max spot instance count exceeded"}
		}, api.NoWorker, "is alive a machine takes"},
		"a drain in a cloud": {func(p *api.Progress) { p.Workers[0].State, p.Cloud = health.Draining, aws }, api.AllDraining, "others come"},
		"one slow shard":     {func(p *api.Progress) { p.State.Warning = "9 shards wait for shard 4" }, api.FrontierBlocked, "wait for shard 4"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := midway()
			p.Manifest.Inputs = []record.Input{{Key: "prompts/nightly.jsonl"}}
			c.change(&p)
			got := api.StatusOf(p, now).Blockers
			switch {
			case c.code == "" && len(got) > 0:
				t.Errorf("%+v", got)
			case c.code != "" && (len(got) == 0 || got[0].Code != c.code || !strings.Contains(got[0].Text+" "+got[0].Remedy, c.says)):
				t.Errorf("%+v, want %s with %q", got, c.code, c.says)
			}
		})
	}
}
