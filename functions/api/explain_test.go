package api_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"rollout/functions/api"
	"rollout/shared/config"
	"rollout/shared/core/health"
	"rollout/shared/core/identity"
	"rollout/shared/core/interval"
	"rollout/shared/core/run"
	"rollout/shared/core/shard"
	"rollout/shared/fault"
	"rollout/shared/record"
)

// running puts run A there, midway, with one worker that has 3 of its shards.
func (d fixture) running(change func(st *run.State, b *health.Heartbeat)) {
	d.t.Helper()
	p := midway()
	b := health.Heartbeat{Schema: 1, Worker: "w", Pool: "default", State: health.Ready, At: noon, DueAt: noon.Add(time.Second), Started: noon.Add(-time.Minute), MaxInFlight: 64,
		Load:  health.Load{InFlight: 64, Rows: 1000, Tokens: 30_000, RowAt: noon, Rate: 30, TokenRate: 900, MedianMS: 2100},
		Holds: []health.HeldShard{{Run: runA, Shard: 4, Attempt: 1, Items: 100, Rows: 50}, {Run: runA, Shard: 5, Attempt: 1, Items: 100, Rows: 10}}}
	change(&p.State, &b)
	d.save(record.ManifestKey(runA), p.Manifest)
	d.save(record.CoordinatorKey(runA), p.State)
	d.save(record.HeartbeatKey("w"), b)
	for _, h := range b.Holds {
		doc, err := shard.New(runA, h.Shard).Claim("w", 0, noon.Add(-30*time.Second), shard.HolderAlive)
		if err != nil {
			d.t.Fatal(err)
		}
		d.save(identity.ShardKey(runA, h.Shard), doc)
	}
}

func TestASlowRunNamesItsCause(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(*run.State, *health.Heartbeat)
		code   string
		says   string
	}{
		"a full server": {func(*run.State, *health.Heartbeat) {}, api.ServerFull,
			"1 worker: 64 of 64 requests at once are at the inference server, which takes 2.1s for one (median): at most about 30 items/s, now 30 items/s and 900 tokens/s"},
		"a full fast server": {func(_ *run.State, b *health.Heartbeat) { b.Load.Rate, b.Load.MedianMS = 470, 136 }, api.ServerFull,
			"at most about 471 items/s, now 470 items/s and 900 tokens/s"},
		"a full slow server": {func(_ *run.State, b *health.Heartbeat) { b.Load.Rate, b.Load.MedianMS = 0.31, 200_000 }, api.ServerFull,
			"at most about 0.32 items/s, now 0.31 items/s"},
		"a full server that says so": {func(_ *run.State, b *health.Heartbeat) {
			b.Load.Servers = []health.Server{{Name: "a", State: "closed", Waiting: 12}, {Name: "b", State: "closed", Waiting: -1}}
		}, api.ServerFull, "12 requests wait at the server: the server is the bound"},
		"a server with room": {func(_ *run.State, b *health.Heartbeat) {
			b.Load.Servers = []health.Server{{Name: "a", State: "closed", Waiting: 0}}
		}, api.ServerFull, "no request waits at the server: allow more at once"},
		"one that does not say":    {func(*run.State, *health.Heartbeat) {}, api.ServerFull, "(its metrics say), the server is the bound"},
		"nothing was answered yet": {func(_ *run.State, b *health.Heartbeat) { b.Load = health.Load{InFlight: 9} }, api.ServerFull, "no request was answered yet: 9 are at"},
		"the last items":           {func(st *run.State, b *health.Heartbeat) { st.Items, b.Load.InFlight = 480, 20 }, api.FewLeft, "20 items are left"},
		"workers that starve":      {func(_ *run.State, b *health.Heartbeat) { b.Load.InFlight = 10 }, api.Starved, "10 of 64 requests at once are used"},
		"a server that refuses": {func(_ *run.State, b *health.Heartbeat) { b.Load.Faults, b.Load.LastFault = 500, "throttled" }, api.ServerFaults,
			"500 requests ended in a fault of the inference server, for 1000 items with a row; the last: throttled it refuses for now"},
		"items that fail":    {func(st *run.State, _ *health.Heartbeat) { st.Counts.OK, st.Counts.Failed = 300, 100 }, api.HighFailureRate, "100 of 400 items that have a row failed, most as invalid_line correct the line"},
		"tokens for nothing": {func(st *run.State, _ *health.Heartbeat) { st.Counts.WastedTokens = 5000 }, api.TokensWasted, "5000 tokens went into answers that were not kept"},
		"a deadline":         {func(st *run.State, _ *health.Heartbeat) { st.Deadline = noon.Add(10 * time.Second) }, api.DeadlineAtRisk, "about 240 items would expire"},
		"a deadline of a fast run": {func(st *run.State, b *health.Heartbeat) {
			st.Deadline, b.Load.Rate = noon.Add(100*time.Millisecond), 300
		}, api.DeadlineAtRisk, "at 300 items/s it would end"},
		"no worker: as in its status": {func(_ *run.State, b *health.Heartbeat) { b.State = health.Gone }, api.NoWorker, "no worker of pool default is alive"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newFixture(t)
			d.running(c.change)
			x, err := d.Explain(t.Context(), runA, "")
			if err != nil {
				t.Fatal(err)
			}
			for _, got := range x.Causes {
				text := got.Text + " " + got.Remedy
				if got.Code == c.code && strings.Contains(text, c.says) {
					return
				}
			}
			t.Errorf("%s with %q is not among %+v", c.code, c.says, x.Causes)
		})
	}
}

func TestOpenShardsAreToldInWords(t *testing.T) {
	t.Parallel()
	ago := func(d time.Duration) *time.Time { at := noon.Add(-d); return &at }
	for want, s := range map[string]api.ShardReport{
		"shard 4 is with worker w for 30s (attempt 1), with 50 of 100 rows":                         {Shard: 4, State: shard.Running, Verdict: health.Alive, Worker: "w", Attempt: 1, Since: ago(30 * time.Second), Items: 100, Rows: 50},
		"shard 4 was held by worker w (attempt 2), which is gone: it is taken over in some seconds": {Shard: 4, State: shard.Running, Verdict: health.HolderDead, Worker: "w", Attempt: 2},
		"shard 4 waits for a worker: sent 2s ago":                                                   {Shard: 4, State: shard.Pending, SentAt: ago(2 * time.Second)},
		"shard 4 waits for a worker, with 7 rows in its checkpoint: sent 2s ago, for the 3rd time":  {Shard: 4, State: shard.Pending, SentAt: ago(2 * time.Second), Generation: 2, Rows: 7},
		"shard 4 waits to be sent; 2 holders in a row vanished; 9 items are suspects: asked last":   {Shard: 4, State: shard.Pending, Vanished: 2, Suspects: 9},
		"shard 4 is with worker w for 0s (attempt 1); 3 suspects are asked now with nothing else":   {Shard: 4, State: shard.Running, Verdict: health.Alive, Worker: "w", Attempt: 1, Since: ago(0), Suspects: 9, OnProbation: []int{1, 2, 3}},
	} {
		if got := s.Describe(noon); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
}

func TestSuspectsAreCountedAmongTheOpenItems(t *testing.T) {
	t.Parallel()
	d := newFixture(t)
	d.running(func(*run.State, *health.Heartbeat) {})
	doc := shard.New(runA, 4)
	doc.State, doc.Worker, doc.Attempt, doc.ClaimedAt, doc.VanishedHolders = shard.Running, "w", 1, noon.Add(-time.Second), 2
	doc.Suspects = interval.Of(interval.Range{Lo: 0, Hi: 1 << 31}) // all items, whatever they are
	d.save(identity.ShardKey(runA, 4), doc)
	x, err := d.Explain(t.Context(), runA, "")
	if err != nil || x.Shards[0].Suspects != 50 || x.OpenShards != 4 || len(x.Shards) != 4 {
		t.Fatalf("%+v, %v", x.Shards, err)
	}
	found := false
	for _, c := range x.Causes {
		found = found || c.Code == api.Suspects && strings.Contains(c.Text, "50 items may be what the inference server died of (the first in shard 4)")
	}
	if !found {
		t.Errorf("causes: %+v", x.Causes)
	}
}

func TestARefusedRunIsExplained(t *testing.T) {
	t.Parallel()
	d := newFixture(t)
	m := manifestOf(runA)
	m.Refused = "no pool serves the model X"
	d.save(record.ManifestKey(runA), m)
	x, err := d.Explain(t.Context(), runA, "")
	if err != nil || x.History[1] != "refused: no pool serves the model X" || !strings.Contains(x.Next[0], "submit it again") {
		t.Errorf("%+v, %v", x, err)
	}
	if _, err := d.Explain(t.Context(), runA, "p-17"); !fault.Is(err, fault.NotFound) || !strings.Contains(err.Error(), "was refused") {
		t.Errorf("an item of it: %v", err)
	}
}

func TestATrainingIsExplainedByItsSteps(t *testing.T) {
	t.Parallel()
	d := newFixture(t)
	d.running(func(st *run.State, b *health.Heartbeat) {
		st.Items, st.Counts.OK, st.Counts.Failed = 1, 0, 0
		b.Holds = []health.HeldShard{{Run: runA, Shard: 0, Attempt: 1, Items: 1, Training: &health.Training{Step: 30, Steps: 90, StepRate: 2, TokenRate: 900}}}
	})
	m := manifestOf(runA)
	m.Kind = config.KindTrain
	d.save(record.ManifestKey(runA), m)
	x, err := d.Explain(t.Context(), runA, "")
	if err != nil || !slices.Contains(x.Next, "step 30 of 90 is done; it ends in about 30s") {
		t.Errorf("%q, %v", x.Next, err)
	}
	for _, c := range x.Causes {
		if strings.Contains(c.Text, "inference server") {
			t.Errorf("a training asks no server: %s", c.Text)
		}
	}
}

func TestEveryClassHasItsAdvice(t *testing.T) {
	t.Parallel()
	for _, c := range fault.Classes {
		if a := api.Advice(c); a == api.Advice("unknown") {
			t.Errorf("%s: %s", c, a)
		}
	}
}
