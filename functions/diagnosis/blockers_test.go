package diagnosis_test

import (
	"strings"
	"testing"
	"time"

	"rollout/functions/diagnosis"
	"rollout/functions/status"
	"rollout/functions/status/statustest"
	"rollout/shared/config"
	"rollout/shared/core/cost"
	"rollout/shared/core/health"
	"rollout/shared/core/interval"
	"rollout/shared/core/run"
	"rollout/shared/core/scaling"
	"rollout/shared/kind"
	"rollout/shared/record"
)

func TestStatusOfNamesTheWorstBlocker(t *testing.T) {
	t.Parallel()
	now := noon.Add(41 * time.Second)
	noRowFor := func(d time.Duration) func(*status.Progress) {
		return func(p *status.Progress) {
			p.Workers[0].StartedAt = noon
			p.Workers[0].Load = health.Load{InFlight: 64, Rows: 9, RowAt: now.Add(-d), MedianMS: 5_000}
		}
	}
	phase := func(ph run.Phase, message string) func(*status.Progress) {
		return func(p *status.Progress) { p.State.Phase, p.State.Message = ph, message }
	}
	inCloud := statustest.InCloud().Hints
	launchFailed := func(ago time.Duration) func(*status.Progress) {
		return func(p *status.Progress) {
			p.Workers, p.Hints = nil, inCloud
			p.Fleet = record.Fleet{AbsentAt: now.Add(-ago), Absent: "Max spot instance count exceeded"}
		}
	}
	lastHeartbeat := func(ago time.Duration) func(*status.Progress) {
		return func(p *status.Progress) { p.Workers[0].Alive, p.Workers[0].HeartbeatAt = false, now.Add(-ago) }
	}
	for name, c := range map[string]struct {
		change func(*status.Progress)
		code   string // of the first blocker; "" for none
		text   string // part of its text and remedy
	}{
		"nothing": {func(*status.Progress) {}, "", ""},
		"not picked up": {func(p *status.Progress) { p.State = run.New(runA) },
			diagnosis.NotPickedUp, "for 41s start `rollout up`"},
		"archive being unpacked": {func(p *status.Progress) {
			p.State, p.Manifest.Inputs[0].Packed = run.New(runA), "gzip"
		}, diagnosis.IsPlanning, "unpacked"},
		"paused": {phase(run.Paused, "prompts/x.jsonl is gone"), diagnosis.IsPaused,
			"paused: prompts/x.jsonl is gone `rollout resume " + string(runA) + "`"},
		"pausing":    {phase(run.Pausing, ""), diagnosis.IsPausing, "requests in flight may end"},
		"ending":     {phase(run.Ending, ""), diagnosis.IsEnding, "until"},
		"finalizing": {phase(run.Finalizing, ""), diagnosis.IsEnding, "being written"},
		"ended":      {phase(run.Completed, ""), "", ""},
		"plan's problem": {func(p *status.Progress) { p.Plan.Problem = "no such archive" },
			diagnosis.NoInput, "no such archive"},
		"planning": {func(p *status.Progress) { p.State.Shards = 0; p.Plan.Total = 7 },
			diagnosis.IsPlanning, "0 of 7 ranges"},
		"plan that grows": {func(p *status.Progress) {
			p.State.Complete, p.State.Growing, p.State.Shards, p.Workers[0].Holds = false, true, 4, nil
		}, diagnosis.IsPlanning, "made from the answers so far"},
		"no worker": {func(p *status.Progress) { p.Workers = nil }, diagnosis.NoWorker, "pool default is alive"},
		"workers of other pools only": {func(p *status.Progress) {
			p.Workers[0].Pool, p.Manifest.ModelURI = "other", "qwen"
			p.Workers[0].Load.Servers = []health.Server{{Name: "http://a/v1", State: "closed"}}
		}, diagnosis.UnknownModel, "no living worker serves the model qwen (pool default): those that live are " +
			"of pool other, whose servers are http://a/v1 let a server serve it"},
		"workers of other pools only, where pools have machines of their own": {func(p *status.Progress) {
			p.Workers[0].Pool, p.Hints = "other", inCloud
		}, diagnosis.NoWorker, "pool default is alive"},
		"worker just died": {func(p *status.Progress) {
			lastHeartbeat(6 * time.Second)(p)
			other := statustest.Worker(7)
			other.Worker = "another"
			p.Workers = append(p.Workers, other)
		}, diagnosis.LostWorker, "6s ago and it holds 3 shards"},
		"only worker just died": {lastHeartbeat(6 * time.Second), diagnosis.NoWorker,
			"is alive; the last heartbeat was 6s ago start `rollout up`"},
		"only worker died before": {lastHeartbeat(time.Hour), diagnosis.NoWorker, "pool default is alive start `rollout up`"},
		"engine away": {func(p *status.Progress) {
			p.Workers[0].Engine = status.EngineAway
			p.Workers[0].Load = health.Load{UnavailableReason: "connection refused",
				UnavailableSince: now.Add(-12 * time.Second)}
		}, diagnosis.NoEngine, "away for 12s: connection refused start the server"},
		"one of two engines away": {func(p *status.Progress) {
			p.Workers = append(p.Workers, statustest.Worker(7))
			p.Workers[1].Engine = status.EngineAway
		}, diagnosis.NoEngine, "of 1 of 2 workers"},
		"all draining": {func(p *status.Progress) { p.Workers[0].State = health.Draining },
			diagnosis.AllDraining, "draining"},
		"workers hold other runs only": {func(p *status.Progress) {
			p.Workers[0].Holds = []health.HeldShard{{Run: runB, Shard: 1, Attempt: 1}}
		}, diagnosis.BusyElsewhere, "other runs first"},
		"no row for less than four medians": {noRowFor(19 * time.Second), "", ""},
		"no row for more than four medians": {noRowFor(21 * time.Second), diagnosis.Stalled, "no item was finished for 21s"},
		"no row in a run that services score": {func(p *status.Progress) {
			noRowFor(time.Minute)(p)
			p.Manifest.Config.Grades = []config.Grade{{Name: "b", Kind: config.GradeHTTP, Service: "reward"},
				{Name: "c", Kind: config.GradeExact}, {Name: "a", Kind: config.GradeHTTP, Service: "reward"}}
		}, diagnosis.Stalled, "inference server, at the scoring service reward (answers wait for their scores), and"},
		"one of two servers away": {func(p *status.Progress) {
			p.Workers[0].Load.Servers = []health.Server{{Name: "http://a/v1", State: "closed"},
				{Name: "http://b/v1", State: "half_open", LastError: "connection refused"}}
		}, diagnosis.NoServer, "1 of 2 inference servers get no requests: http://b/v1: connection refused start them again"},
		"limited": {func(p *status.Progress) {
			noRowFor(time.Hour)(p) // which is not stalled
			p.Workers = append(p.Workers, statustest.Worker(7))
			p.Workers[0].Load.Limit = &health.Limit{Requests: 600, RequestsFrom: "config", Tokens: 90_000,
				TokensFrom: "config", UsedRequests: 400, Waiting: 3}
			p.Workers[1].Load.Limit = &health.Limit{Requests: 600, RequestsFrom: "config", Tokens: 90_000,
				TokensFrom: "config", UsedRequests: 185}
		}, diagnosis.Limited, "limited to 600 requests a minute and 90,000 tokens a minute, 98% used: " +
			"requests of 1 of 2 workers of pool default wait for that wait, or raise"},
		"limited by its server": {func(p *status.Progress) {
			p.Workers[0].Load.Limit = &health.Limit{Requests: 600, RequestsFrom: "refusals", Tokens: 90_000,
				TokensFrom: "headers", UsedTokens: 45_000, Waiting: 3, WaitUntil: now.Add(40 * time.Second)}
		}, diagnosis.Limited, "limited to 600 requests a minute (as its refusals show) and 90,000 tokens a minute " +
			"(as the server states), 50% used: requests of 1 of 1 worker of pool default wait for that; " +
			"the server wants no requests for 40s more wait, or ask for higher limits"},
		"a server that wants a pause": {func(p *status.Progress) {
			p.Workers[0].Load.Limit = &health.Limit{Waiting: 3, WaitUntil: now.Add(7 * time.Second)}
		}, diagnosis.Limited, "the server wants no requests for 7s more: requests of 1 of 1 worker of pool default wait"},
		"below its limit": {func(p *status.Progress) {
			p.Workers[0].Load.Limit = &health.Limit{Requests: 600}
		}, "", ""},
		"a server that lists other models": {func(p *status.Progress) {
			p.Workers[0].Load.Servers = []health.Server{{Name: "http://a/v1", State: "closed",
				LastError: `the server lists no model "m"; it lists a, b`}}
		}, diagnosis.UnknownModel, `http://a/v1: the server lists no model "m"; it lists a, b correct the model`},
		"a server that answers as another model": {func(p *status.Progress) {
			p.Workers[0].Load.Servers = []health.Server{{Name: "http://a/v1", State: "closed",
				LastError: `the server answers as model "b" when it is asked for "m"`}}
		}, diagnosis.UnknownModel, `http://a/v1: the server answers as model "b" when it is asked for "m" correct`},
		"the only server set aside": {func(p *status.Progress) {
			p.Workers[0].Load.Servers = []health.Server{{Name: "http://a/v1", State: "set_aside", LastError: "status 403: no"}}
		}, diagnosis.NoServer, "1 of 1 inference server gets no requests: http://a/v1: status 403: no mend what they say"},
		"servers in use": {func(p *status.Progress) {
			p.Workers[0].Load.Servers = []health.Server{{Name: "http://a/v1", State: "closed"},
				{Name: "http://b/v1", State: "doubted"}}
		}, "", ""},
		"not picked up in a cloud": {func(p *status.Progress) { p.State, p.Hints = run.New(runA), inCloud },
			diagnosis.NotPickedUp, "read the functions' logs"},
		"function of a cloud still starting": {func(p *status.Progress) {
			p.State, p.Hints, p.Manifest.CreatedAt = run.New(runA), inCloud, now.Add(-20*time.Second)
		}, diagnosis.IsPlanning, "being cut"},
		"no machine in a cloud": {func(p *status.Progress) { p.Workers, p.Hints = nil, inCloud },
			diagnosis.NoWorker, "ask the provider about the machines of default"},
		"machines boot in a cloud": {func(p *status.Progress) {
			p.Workers, p.Hints = nil, inCloud
			p.Machines = []status.PoolMachines{{Pool: "default", Asked: 2, Launching: 1, Booting: []status.BootingMachine{
				{Machine: "i-1", Stage: health.BootImage, Since: now.Add(-3 * time.Minute)}}}}
		}, diagnosis.NoWorker, "no worker of pool default is alive; 2 machines are asked for; 1 machine starts; " +
			"machine i-1 fetches the server's image since 3m00s ask"},
		"boots fail in a cloud": {func(p *status.Progress) {
			p.Workers, p.Hints = nil, inCloud
			p.Fleet.Boots = scaling.Boots{Failures: 2, RetryAt: now.Add(2 * time.Minute), Reason: "i-1: no engine"}
		}, diagnosis.NoWorker, "alive; 2 machines in a row ended before an answer, and the next is asked for in 2m00s: " +
			"i-1: no engine ask"},
		"launch just failed": {launchFailed(time.Minute), diagnosis.NoWorker,
			"is alive; a machine could not come up 1m00s ago: Max spot instance count exceeded ask the provider"},
		"launch failed long ago": {launchFailed(time.Hour), diagnosis.NoWorker, "is alive ask the provider"},
		"all draining in a cloud": {func(p *status.Progress) { p.Workers[0].State, p.Hints = health.Draining, inCloud },
			diagnosis.AllDraining, "other machines start"},
		"one slow shard": {func(p *status.Progress) { p.State.Warning = "9 shards wait for shard 4" },
			diagnosis.FrontierBlocked, "wait for shard 4"},
		"fewer workers than trials may be in flight": {func(p *status.Progress) {
			k, _ := kind.Table{}.Of(config.KindTrials)
			p.Kind, p.Manifest.Config.Design = k, &config.Design{MaxConcurrency: 5000}
		}, diagnosis.FewWorkers, "5,000 trials may be in flight at once, and its workers send"},
		"as many workers as trials may be in flight": {func(p *status.Progress) {
			k, _ := kind.Table{}.Of(config.KindTrials)
			p.Kind, p.Manifest.Config.Design = k, &config.Design{MaxConcurrency: 2}
		}, "", ""},
		"ranks wait for their worker": {func(p *status.Progress) {
			p.Workers[0].Load.Pipeline = &health.Pipeline{Signature: "stage 0 bound", OverlapScore: 0.5}
		}, diagnosis.PipelineWaits, "stage 0 bound, overlap 0.50 give the worker more processors"},
		"ranks that never wait": {func(p *status.Progress) {
			p.Workers[0].Load.Pipeline = &health.Pipeline{Signature: "stage 1 bound", OverlapScore: 1}
		}, "", ""},
		"the token budget": {func(p *status.Progress) {
			p.State.Warning = "shards that wait for tokens of the budget: 1"
			p.State.Allowances = run.Allowances{{Range: interval.Range{Lo: 3, Hi: 4}, Spend: cost.Spend{Tokens: 500},
				Waits: true}}
		}, diagnosis.AwaitsBudget, "wait for tokens of the budget"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := statustest.Midway()
			p.Manifest.Inputs = []record.Input{{Key: "prompts/nightly.jsonl"}}
			c.change(&p)
			got := diagnosis.StatusOf(p, now).Blockers
			switch {
			case c.code == "" && len(got) > 0:
				t.Errorf("%+v", got)
			case c.code != "" && (len(got) == 0 || got[0].Code != c.code ||
				!strings.Contains(got[0].Text+" "+got[0].Remedy, c.text)):
				t.Errorf("%+v, want %s with %q", got, c.code, c.text)
			}
		})
	}
}
