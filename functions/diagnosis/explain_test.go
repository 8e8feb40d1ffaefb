package diagnosis_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"rollout/functions/diagnosis"
	"rollout/functions/status"
	"rollout/functions/status/statustest"
	"rollout/shared/clock"
	"rollout/shared/cloud"
	"rollout/shared/config"
	"rollout/shared/core/health"
	"rollout/shared/core/identity"
	"rollout/shared/core/interval"
	"rollout/shared/core/run"
	"rollout/shared/core/schedule"
	"rollout/shared/core/shard"
	"rollout/shared/fault"
	"rollout/shared/host"
	"rollout/shared/host/hosttest"
	"rollout/shared/record"
)

const (
	runA = statustest.RunA
	runB = statustest.RunB
)

var noon = statustest.Noon

// fixture is an explainer over empty stores at noon.
type fixture struct {
	*diagnosis.Explainer
	t     *testing.T
	ports host.Ports
}

func newFixture(t *testing.T) fixture {
	t.Helper()
	p := hosttest.With(clock.Fixed(noon))
	d := config.DefaultDeployment()
	return fixture{diagnosis.NewExplainer(p, d, status.NewReader(p, d, cloud.OneMachine())), t, p}
}

// save creates or replaces a document.
func (f fixture) save(key string, v any) {
	f.t.Helper()
	hosttest.Save(f.t, f.ports, key, v)
}

// running saves run A, midway, with one worker that holds two of its shards.
func (f fixture) running(change func(st *run.State, b *health.Heartbeat)) {
	f.t.Helper()
	p := statustest.Midway()
	b := health.Heartbeat{Schema: 1, Worker: "w", Pool: "default", State: health.Ready, At: noon,
		DueAt: noon.Add(time.Second), Started: noon.Add(-time.Minute), MaxInFlight: 64,
		Load: health.Load{InFlight: 64, Rows: 1000, Tokens: 30_000, RowAt: noon, Rate: 30, TokenRate: 900, MedianMS: 2100},
		Holds: []health.HeldShard{{Run: runA, Shard: 4, Attempt: 1, Items: 100, Rows: 50},
			{Run: runA, Shard: 5, Attempt: 1, Items: 100, Rows: 10}}}
	change(&p.State, &b)
	f.save(record.ManifestKey(runA), p.Manifest)
	f.save(record.CoordinatorKey(runA), p.State)
	f.save(record.HeartbeatKey("w"), b)
	for _, h := range b.Holds {
		doc, err := shard.New(runA, h.Shard).Claim("w", noon.Add(-30*time.Second), shard.HolderAlive)
		if err != nil {
			f.t.Fatal(err)
		}
		f.save(identity.ShardKey(runA, h.Shard), doc)
	}
}

func TestExplainNamesTheCauseOfASlowRun(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(*run.State, *health.Heartbeat)
		code   string
		text   string // part of the text and the remedy
	}{
		"server full": {func(*run.State, *health.Heartbeat) {}, diagnosis.ServerFull,
			"1 worker: 64 of 64 requests at once are at the inference server, which takes 2.1s for one (median): " +
				"at most about 30.5 items/s, now 30.0 items/s and 900 tokens/s"},
		"fast server full": {func(_ *run.State, b *health.Heartbeat) {
			b.Load.Rate, b.Load.MedianMS = 470, 136
		}, diagnosis.ServerFull, "at most about 471 items/s, now 470 items/s and 900 tokens/s"},
		"slow server full": {func(_ *run.State, b *health.Heartbeat) {
			b.Load.Rate, b.Load.MedianMS = 0.31, 200_000
		}, diagnosis.ServerFull, "at most about 0.32 items/s, now 0.31 items/s"},
		"server full with requests waiting": {func(_ *run.State, b *health.Heartbeat) {
			b.Load.Servers = []health.Server{{Name: "a", State: "closed", Waiting: 12},
				{Name: "b", State: "closed", Waiting: -1}}
		}, diagnosis.ServerFull, "12 requests wait at the server: the server is the bound"},
		"server with room": {func(_ *run.State, b *health.Heartbeat) {
			b.Load.Servers = []health.Server{{Name: "a", State: "closed", Waiting: 0}}
		}, diagnosis.ServerFull, "no request waits at the server: allow more at once"},
		"server does not report waiting requests": {func(*run.State, *health.Heartbeat) {}, diagnosis.ServerFull,
			"(its metrics say), the server is the bound"},
		"no answer yet": {func(_ *run.State, b *health.Heartbeat) {
			b.Load = health.Load{InFlight: 9}
		}, diagnosis.ServerFull, "no request was answered yet: 9 are at"},
		"last items": {func(st *run.State, b *health.Heartbeat) {
			st.Items, b.Load.InFlight = 480, 20
		}, diagnosis.FewLeft, "20 items are left"},
		"workers without items": {func(_ *run.State, b *health.Heartbeat) {
			b.Load.InFlight = 10
		}, diagnosis.Starved, "10 of 64 requests at once are used"},
		"throttling server": {func(_ *run.State, b *health.Heartbeat) {
			b.Load.Faults, b.Load.LastFault = 500, "throttled"
		}, diagnosis.ServerFaults, "500 requests ended in a fault of the inference server, for 1,000 items with a row; " +
			"the last: throttled the server throttles"},
		"failing items": {func(st *run.State, _ *health.Heartbeat) {
			st.Counts.OK, st.Counts.Failed = 300, 100
		}, diagnosis.HighFailureRate, "100 of 400 items with a row failed, most as invalid_line correct the line"},
		"wasted tokens": {func(st *run.State, _ *health.Heartbeat) {
			st.Counts.WastedTokens = 5000
		}, diagnosis.TokensWasted, "5,000 tokens went into answers that were not kept"},
		"deadline too early": {func(st *run.State, _ *health.Heartbeat) {
			st.Deadline = noon.Add(10 * time.Second)
		}, diagnosis.DeadlineAtRisk, "about 240 items would expire"},
		"deadline of a fast run": {func(st *run.State, b *health.Heartbeat) {
			st.Deadline, b.Load.Rate = noon.Add(100*time.Millisecond), 300
		}, diagnosis.DeadlineAtRisk, "at 300 items/s it would end"},
		"blocker of the status": {func(_ *run.State, b *health.Heartbeat) {
			b.State = health.Gone
		}, diagnosis.NoWorker, "no worker of pool default is alive"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			f.running(c.change)
			x, err := f.Explain(t.Context(), runA, "")
			if err != nil {
				t.Fatal(err)
			}
			for _, got := range x.Causes {
				text := got.Text + " " + got.Remedy
				if got.Code == c.code && strings.Contains(text, c.text) {
					return
				}
			}
			t.Errorf("%s with %q is not among %+v", c.code, c.text, x.Causes)
		})
	}
}

func TestShardReportDescribesTheShard(t *testing.T) {
	t.Parallel()
	ago := func(d time.Duration) *time.Time { at := noon.Add(-d); return &at }
	for want, s := range map[string]diagnosis.ShardReport{
		"shard 5 has spent $0.25 and waits for more of the budget in dollars, with 3 rows in its checkpoint": {Shard: 5,
			State: shard.Pending, Rows: 3, WaitsWithUSD: 0.25, Generation: -1},
		"shard 5 has spent 1 token and $0.25, and waits for more of the run's budgets": {Shard: 5,
			State: shard.Pending, WaitsWith: 1, WaitsWithUSD: 0.25, Generation: -1},
		"shard 5 has spent 120 tokens and waits for more of the token budget, with 3 rows in its checkpoint": {Shard: 5,
			State: shard.Pending, Rows: 3, WaitsWith: 120, Generation: -1},
		"shard 4 is with worker w for 30s (attempt 1), with 50 of 100 rows": {Shard: 4, State: shard.Running,
			Verdict: health.Alive, Worker: "w", Attempt: 1, Since: ago(30 * time.Second), Items: 100, Rows: 50},
		"shard 4 was held by worker w (attempt 2), which is gone: it is taken over in some seconds": {Shard: 4,
			State: shard.Running, Verdict: health.HolderDead, Worker: "w", Attempt: 2},
		"shard 4 was held by worker w (attempt 2), which is gone: sent again 30s ago, " +
			"it waits for a worker that needs more items, with 7 of 9 rows": {Shard: 4, State: shard.Running,
			Verdict: health.HolderDead, Worker: "w", Attempt: 2, Since: ago(time.Minute), SentAt: ago(30 * time.Second),
			Generation: 1, Items: 9, Rows: 7},
		"shard 4 is paused, with 7 rows in its checkpoint": {Shard: 4, State: shard.Pending, Paused: true, Rows: 7,
			SentAt: ago(2 * time.Second)},
		"shard 4 waits for a worker: sent 2s ago": {Shard: 4, State: shard.Pending, SentAt: ago(2 * time.Second)},
		"shard 4 waits for a worker, with 7 rows in its checkpoint: sent 2s ago, for the 3rd time": {Shard: 4,
			State: shard.Pending, SentAt: ago(2 * time.Second), Generation: 2, Rows: 7},
		"shard 4 waits to be sent; 2 holders in a row vanished; 9 items are suspects: asked last": {Shard: 4,
			State: shard.Pending, Vanished: 2, Suspects: 9},
		"shard 4 is with worker w for 0s (attempt 1); 3 suspects are asked now with nothing else": {Shard: 4,
			State: shard.Running, Verdict: health.Alive, Worker: "w", Attempt: 1, Since: ago(0), Suspects: 9,
			OnProbation: []int{1, 2, 3}},
	} {
		if got := s.Describe(noon); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
}

func TestSuspectsAreCountedAmongTheOpenItems(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.running(func(*run.State, *health.Heartbeat) {})
	doc := shard.New(runA, 4)
	doc.State, doc.Worker, doc.Attempt = shard.Running, "w", 1
	doc.ClaimedAt, doc.VanishedHolders = noon.Add(-time.Second), 2
	doc.Suspects = interval.Of(interval.Range{Lo: 0, Hi: 1 << 31}) // all items, however many there are
	f.save(identity.ShardKey(runA, 4), doc)
	x, err := f.Explain(t.Context(), runA, "")
	if err != nil || x.Shards[0].Suspects != 50 || x.OpenShards != 4 || len(x.Shards) != 4 {
		t.Fatalf("%+v, %v", x.Shards, err)
	}
	const want = "50 items may be what the inference server died of (the first in shard 4)"
	if !slices.ContainsFunc(x.Causes, func(b status.Blocker) bool {
		return b.Code == diagnosis.Suspects && strings.Contains(b.Text, want)
	}) {
		t.Errorf("causes: %+v", x.Causes)
	}
}

func TestExplainOfARefusedRunSaysWhy(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	m := statustest.Manifest(runA)
	m.Refused = "no pool serves the model X"
	f.save(record.ManifestKey(runA), m)
	x, err := f.Explain(t.Context(), runA, "")
	if err != nil || x.History[1] != "refused: no pool serves the model X" ||
		!strings.Contains(x.Next[0], "submit it again") {
		t.Errorf("%+v, %v", x, err)
	}
	_, err = f.Explain(t.Context(), runA, "p-17")
	if !fault.Is(err, fault.NotFound) || !strings.Contains(err.Error(), "was refused") {
		t.Errorf("an item of it: %v", err)
	}
}

func TestExplainSaysWhatIsSpentOfBudgets(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.running(func(st *run.State, _ *health.Heartbeat) {
		st.Counts.PromptTokens, st.Counts.CompletionTokens, st.Counts.WastedTokens = 4000, 0, 0
		st.Counts.TokenNanoUSD = 3_100_000_000
	})
	m := statustest.Manifest(runA)
	m.Config.Limits.Tokens, m.Config.Limits.Dollars = 5000, 12.5
	f.save(record.ManifestKey(runA), m)
	x, err := f.Explain(t.Context(), runA, "")
	for _, want := range []string{"spent of its budget (limits.tokens): 4,000 of 5,000 tokens",
		"spent of its budget (limits.dollars): $3.10 of $12.50"} {
		if err != nil || !slices.Contains(x.History, want) {
			t.Errorf("%q, %v; want %q", x.History, err, want)
		}
	}
}

func TestExplainListsTheVariantsThatLooksHavePruned(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.running(func(st *run.State, _ *health.Heartbeat) {
		st.Looks, st.Pruned = 1, schedule.Pruned{{Variant: 1, From: 8}}
	})
	m := statustest.Manifest(runA)
	m.Kind, m.Config.Kind = config.KindTrials, config.KindTrials
	m.Config.Design = &config.Design{Replications: 2, Order: config.TrialsInterleaved}
	m.Config.Variants = []config.Variant{{Name: "plain"}, {Name: "terse"}}
	m.Config.Pruning = &config.Pruning{Rule: config.PruneRace, Looks: 4}
	f.save(record.ManifestKey(runA), m)
	f.save(record.PlanKey(runA), record.Plan{Schema: 1, Shards: 40, Items: 40, Looks: 1,
		Pruned: []record.PlannedPruning{{Variant: 1, From: 8, Why: "look 1 of 4: its score 0 on 2 tasks is worse"}}})
	x, err := f.Explain(t.Context(), runA, "")
	for _, want := range []string{"1 of 4 looks are decided, at which variants can be left out",
		"variant terse is pruned from trial 8 on: look 1 of 4: its score 0 on 2 tasks is worse"} {
		if err != nil || !slices.Contains(x.History, want) {
			t.Errorf("%q, %v; want %q", x.History, err, want)
		}
	}
}

func TestAdviceNamesTheBudgetOfTheRun(t *testing.T) {
	t.Parallel()
	for want, limits := range map[string]config.Limits{
		"the token budget was used up first: ":        {Tokens: 5},
		"the budget in dollars was used up first: ":   {Dollars: 5},
		"one of the run's budgets was used up first:": {Tokens: 5, Dollars: 5},
	} {
		f := newFixture(t)
		f.running(func(st *run.State, _ *health.Heartbeat) {
			st.Phase, st.EndedAt, st.Counts.Failed = run.OverBudget, noon, 1
			st.Counts.ByClass = map[string]int{string(fault.Budget): 1}
		})
		m := statustest.Manifest(runA)
		m.Config.Limits = limits
		f.save(record.ManifestKey(runA), m)
		x, err := f.Explain(t.Context(), runA, "")
		if err != nil || !slices.ContainsFunc(x.Next, func(s string) bool { return strings.Contains(s, want) }) {
			t.Errorf("%q, %v; want %q", x.Next, err, want)
		}
	}
}

func TestExplainOfATrainingNamesItsStepsAndNoServer(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.running(func(st *run.State, b *health.Heartbeat) {
		st.Items, st.Counts.OK, st.Counts.Failed = 1, 0, 0
		b.Holds = []health.HeldShard{{Run: runA, Shard: 0, Attempt: 1, Items: 1,
			Training: &health.Training{Step: 30, Steps: 90, StepRate: 2, TokenRate: 900}}}
	})
	m := statustest.Manifest(runA)
	m.Kind = config.KindTrain
	f.save(record.ManifestKey(runA), m)
	x, err := f.Explain(t.Context(), runA, "")
	if err != nil || !slices.Contains(x.Next, "step 30 of 90 is done; it ends in about 30s") {
		t.Errorf("%q, %v", x.Next, err)
	}
	for _, c := range x.Causes {
		if strings.Contains(c.Text, "inference server") {
			t.Errorf("a cause of a training names a server: %s", c.Text)
		}
	}
}

func TestEveryClassHasAdvice(t *testing.T) {
	t.Parallel()
	for _, c := range fault.Classes {
		if a := diagnosis.Advice(c, diagnosis.Again{}); a == diagnosis.Advice("unknown", diagnosis.Again{}) {
			t.Errorf("%s: %s", c, a)
		}
	}
}
