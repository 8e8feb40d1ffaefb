package status_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"rollout/functions/status"
	"rollout/functions/status/statustest"
	"rollout/shared/core/cost"
	"rollout/shared/core/health"
	"rollout/shared/core/interval"
	"rollout/shared/core/run"
	"rollout/shared/core/shard"
	"rollout/shared/record"
)

const (
	runA = statustest.RunA
	runB = statustest.RunB
)

var noon = statustest.Noon

func TestRates(t *testing.T) {
	t.Parallel()
	num := func(f float64) *float64 { return &f }
	reports := func(p *status.Progress, rate float64) {
		p.Workers[0].Load = health.Load{Rows: 9, RowAt: noon, Rate: rate, TokenRate: 30 * rate}
	}
	const at = 40 * time.Second
	for name, c := range map[string]struct {
		change            func(*status.Progress)
		after             time.Duration // since the start
		rate, tokens, eta *float64
	}{
		"average since the start": {func(*status.Progress) {}, at, num(10), num(200), num(45)},
		"no ETA before all is planned": {func(p *status.Progress) { p.State.Complete = false },
			at, num(10), num(200), nil},
		"nothing committed": {func(p *status.Progress) { p.State.Counts = shard.Counts{} }, at, nil, nil, nil},
		"not started":       {func(p *status.Progress) { p.State.StartedAt = time.Time{} }, at, nil, nil, nil},
		"clock behind":      {func(*status.Progress) {}, -time.Second, nil, nil, nil},
		"paused":            {func(p *status.Progress) { p.State.Phase = run.Paused }, at, nil, nil, nil},
		"ending":            {func(p *status.Progress) { p.State.Phase = run.Ending }, at, nil, nil, nil},
		"last save too old": {func(*status.Progress) {}, 10 * time.Minute, nil, nil, nil},
		"average of the whole ended run": {func(p *status.Progress) {
			p.State.Phase, p.State.EndedAt = run.Stopped, p.State.StartedAt.Add(100*time.Second)
		}, time.Hour, num(4), num(80), nil},
		"more committed than planned": {func(p *status.Progress) { p.State.Items = 100 },
			at, num(10), num(200), num(0)},
		"rate that the worker reports": {func(p *status.Progress) { reports(p, 30) }, at, num(30), num(900), num(15)},
		"worker reports no row lately": {func(p *status.Progress) { reports(p, 0) }, at, num(0), num(0), nil},
		"its own of a worker of several runs": {func(p *status.Progress) {
			reports(p, 40)
			p.Workers[0].Holds = append(p.Workers[0].Holds, health.HeldShard{Run: runB, Shard: 1, Attempt: 1})
			p.Workers[0].Load.Runs = []health.RunLoad{{Run: runA, Rate: 5, TokenRate: 150, RowAt: noon},
				{Run: runB, Rate: 35, TokenRate: 1050, RowAt: noon}}
		}, at, num(5), num(150), num(90)},
		"no row of its own yet": {func(p *status.Progress) {
			reports(p, 40)
			p.Workers[0].Load.Runs = []health.RunLoad{{Run: runA, InFlight: 1}}
			p.State.Counts = shard.Counts{}
		}, at, nil, nil, nil},
		"its only engine is away": {func(p *status.Progress) {
			reports(p, 40)
			p.Workers[0].Engine = status.EngineAway
		}, at, nil, nil, nil},
		"a retry, whose counts have rows of its parent": {func(p *status.Progress) {
			p.Manifest.Parent = &record.Parent{Run: runB}
		}, at, nil, nil, nil},
		"dead worker's rate is ignored": {func(p *status.Progress) {
			reports(p, 40)
			p.Workers[0].Alive = false
		}, at, num(10), num(200), num(60)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := statustest.Midway()
			c.change(&p)
			s := status.Of(p, noon.Add(time.Second+c.after))
			for what, pair := range map[string][2]*float64{
				"rate": {c.rate, s.Rate}, "token rate": {c.tokens, s.TokenRate}, "eta": {c.eta, s.ETASeconds},
			} {
				if d := cmp.Diff(pair[0], pair[1]); d != "" {
					t.Errorf("%s (-want +got):\n%s", what, d)
				}
			}
		})
	}
}

func TestItemsLeftUnansweredByTheEndAreNotAtFault(t *testing.T) {
	t.Parallel()
	p := statustest.Midway()
	p.State.Phase, p.State.EndedAt = run.Stopped, p.State.StartedAt.Add(100*time.Second)
	p.State.Counts = shard.Counts{OK: 390, Failed: 610, ByClass: map[string]int{"too_long": 10, "canceled": 600}}
	s := status.Of(p, noon.Add(time.Hour))
	if s.Items.Failed != 610 || s.Items.Unanswered != 600 || s.Items.Committed() != 400 || *s.Rate != 4 {
		t.Errorf("%+v, committed %d, rate %v", s.Items, s.Items.Committed(), *s.Rate)
	}
}

func TestRefusedRunHasFailed(t *testing.T) {
	t.Parallel()
	m := statustest.Manifest(runA)
	m.Refused = "prompts/nightly.toml:3: sampling.top_p: must be at most 1"
	s := status.Of(status.Progress{Manifest: m, State: run.New(runA)}, noon.Add(time.Hour))
	if s.Phase != run.Failed || s.Message != m.Refused || s.EndedAt == nil || !s.EndedAt.Equal(noon) {
		t.Errorf("phase %s, message %q, ended %v", s.Phase, s.Message, s.EndedAt)
	}
}

func TestStatusShowsThePlanBeforeCoordinateHasSaved(t *testing.T) {
	t.Parallel()
	p := status.Progress{Manifest: statustest.Manifest(runA), State: run.New(runA),
		Plan: record.Plan{Schema: 1, Shards: 7, Items: 1792}}
	s := status.Of(p, noon)
	if s.Items.Total != 1792 || s.Shards.Total != 7 || s.Items.Planned {
		t.Errorf("items %+v, shards %+v", s.Items, s.Shards)
	}
}

func TestStatusShowsFailedShardsInARowUnlessZero(t *testing.T) {
	t.Parallel()
	for streak, want := range map[int]bool{0: false, 3: true} {
		p := statustest.Midway()
		p.State.FailedStreak = streak
		b, err := json.Marshal(status.Of(p, noon))
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Contains(string(b), `"failed_shards_in_a_row":3,`); got != want {
			t.Errorf("%d failed shards in a row: shown %v, want %v", streak, got, want)
		}
	}
}

// What is spent of budgets is that of done shards, of those that wait, and of those that are
// held; of the dollars also the control plane.
func TestStatusTellsWhatIsSpentOfBudgets(t *testing.T) {
	t.Parallel()
	p := statustest.Midway()
	if got := status.Of(p, noon).Budgets; got != nil {
		t.Errorf("a run without a budget has %+v", got)
	}
	p.Manifest.Config.Limits.Tokens, p.Manifest.Config.Limits.Dollars = 5000, 12.5
	p.State.Counts = shard.Counts{OK: 1, PromptTokens: 1000, TokenNanoUSD: 2_000_000_000,
		Machines: cost.Uses{"a/spot": cost.Use{Busy: 1_000_000}.At(1800)}}
	p.State.ControlMicroUSD = 125_000
	p.State.Allowances = run.Allowances{{Range: interval.Range{Lo: 900, Hi: 901}, Waits: true,
		Spend: cost.Spend{Tokens: 30, MicroUSD: 250_000}}}
	p.Workers = append(p.Workers, status.WorkerStatus{Worker: "w9", Alive: true, Holds: []health.HeldShard{
		{Run: runA, Shard: 901, Tokens: 7, TokenNanoUSD: 1_000_000_000, Machine: cost.Use{Idle: 1_000_000}.At(3600)},
		{Run: runB, Shard: 1, Tokens: 9, TokenNanoUSD: 1_000_000_000},
	}})
	want := []record.Budget{{Name: "tokens", Used: 1037, Limit: 5000}, {Name: "dollars", Used: 4.875, Limit: 12.5}}
	if d := cmp.Diff(want, status.Of(p, noon).Budgets); d != "" {
		t.Errorf("(-want +got)\n%s", d)
	}
}

func TestStatusTellsProgressByRole(t *testing.T) {
	t.Parallel()
	p := statustest.Midway()
	p.Manifest.Roles = []record.Role{{Name: "judge", Pool: "judges", ModelURI: "wise"}}
	p.State.Roles = []run.RoleState{
		{RolePlan: run.RolePlan{Shards: 4, Items: 400}, Done: 4, Counts: p.State.Counts},
		{RolePlan: run.RolePlan{Shards: 6, Items: 600}, Counts: shard.Counts{WastedTokens: 3}},
	}
	s := status.Of(p, noon.Add(time.Minute))
	if len(s.Roles) != 2 || s.Roles[0].Name != "answer" || s.Roles[0].Completed != 390 ||
		s.Roles[0].FailedByClass["too_long"] != 3 || s.Roles[1].Name != "judge" || s.Roles[1].Model != "wise" ||
		s.Roles[1].Shards != 6 || s.Roles[1].WastedTokens != 3 {
		t.Errorf("%+v", s.Roles)
	}
	if s.Items.Total != 400 {
		t.Errorf("%d items, want those of the answer", s.Items.Total)
	}
	if one := status.Of(statustest.Midway(), noon.Add(time.Minute)); one.Items.Uncommitted == 0 ||
		s.Items.Processed() != 400 || s.Items.Uncommitted != 400-s.Items.Committed() {
		t.Errorf("rows that are not committed yet are of another role: %+v", s.Items)
	}
	if got := strings.Join(s.Pools(), " "); got != "default judges" {
		t.Errorf("pools %s", got)
	}
	if got := strings.Join(p.Manifest.NeededPools(p.State), " "); got != "judges" {
		t.Errorf("it needs %s", got)
	}
	if b, _ := json.Marshal(status.Of(statustest.Midway(), noon)); strings.Contains(string(b), "roles") {
		t.Error("a run of one role has counts by role")
	}
}
