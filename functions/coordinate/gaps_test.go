package coordinate_test

import (
	"context"
	"testing"
	"time"

	"rollout/functions/coordinate"
	"rollout/shared/config"
	"rollout/shared/core/interval"
	"rollout/shared/core/run"
	"rollout/shared/core/schedule"
	"rollout/shared/host/hosttest"
	"rollout/shared/kind"
	"rollout/shared/queue"
	"rollout/shared/record"
	"rollout/shared/shardtable"
)

// TestPrunedVariantIsPassedOver prunes the only variant of a run while one of its
// shards is in flight. The record is written before the others count as done.
func TestPrunedVariantIsPassedOver(t *testing.T) {
	t.Parallel()
	d := newFixture(t, 300, 1, ofConstrainedKind)
	c := newCoordinator(d.Ports, coordinate.Options{Kinds: constrained(t, schedule.Constraints{MaxInFlightByVariant: 1})})
	apply := func(e run.Event) {
		t.Helper()
		if _, err := c.Apply(t.Context(), id, []run.Event{e}); err != nil {
			t.Fatal(err)
		}
	}
	apply(run.Event{Kind: run.Reevaluate})
	if s := d.state(); s.Sent() != 1 || s.NextShard != 300 {
		t.Fatalf("%d shards are sent, and all before %d were looked at; want 1, 300", s.Sent(), s.NextShard)
	}
	apply(run.Event{Kind: run.VariantPruned, Why: "it is worse"})
	if s := d.state(); s.Done.Set.Len() != 0 || s.Sent() != 1 {
		t.Errorf("%d shards are done, %d sent, while the first one is in flight", s.Done.Set.Len(), s.Sent())
	}
	var p record.PrunedVariant
	b := hosttest.Object(t, d.Ports, record.PrunedKey(id, 0))
	if err := record.Decode([]byte(b), &p, "record"); err != nil || p.Why != "it is worse" || p.Run != id {
		t.Errorf("the record is %s (%v)", b, err)
	}
	apply(run.Event{Kind: run.VariantPruned, Why: "it is the worst"})
	if again := hosttest.Object(t, d.Ports, record.PrunedKey(id, 0)); again != b {
		t.Errorf("the record became %s", again)
	}
	apply(run.Event{Kind: run.ShardDone})
	s := d.state()
	got := s.Done.Set.Ranges()
	if len(got) != 1 || got[0] != (interval.Range{Lo: 0, Hi: 300}) || s.Phase != run.Finalizing {
		t.Errorf("the run is %s, and %v are done", s.Phase, got)
	}
	if s.Counts.ByClass["pruned"] != 299 {
		t.Errorf("counts %+v, want 299 pruned items", s.Counts)
	}
}

// TestRunOfUnknownKindIsNotStepped checks that a run is not coordinated under the
// rules of another kind.
func TestRunOfUnknownKindIsNotStepped(t *testing.T) {
	t.Parallel()
	d := newFixture(t, 3, 1, func(m *record.Manifest) { m.Kind = "later" })
	if _, err := d.coordinator().Apply(t.Context(), id, []run.Event{{Kind: run.Reevaluate}}); err == nil {
		t.Error("a run of an unknown kind is stepped")
	}
}

// TestChainGoesOnFarAway finishes the first shard of a chain whose second one lies
// thousands of shards behind it.
func TestChainGoesOnFarAway(t *testing.T) {
	t.Parallel()
	const shards, second = 3000, 2900
	d := newFixture(t, shards, 1, ofConstrainedKind)
	d.labelChains(func(n int) uint32 {
		if n == 0 || n == second {
			return 1
		}
		return 2
	})
	c := newCoordinator(d.Ports, coordinate.Options{
		Kinds: constrained(t, schedule.Constraints{Chains: true, MaxInFlightByVariant: 1})})
	for _, e := range []run.Event{{Kind: run.Reevaluate}, {Kind: run.ShardDone}} {
		if _, err := c.Apply(t.Context(), id, []run.Event{e}); err != nil {
			t.Fatal(err)
		}
	}
	if s := d.state(); s.WasSent(1) || !s.WasSent(second) {
		t.Errorf("in flight are %v, want shard %d", s.InFlight.Chunks, second)
	}
}

// countedQueues count the calls that send work.
type countedQueues struct {
	queue.Queues
	sends, messages *int
}

func (q countedQueues) Send(ctx context.Context, to string, bodies [][]byte, delay time.Duration) error {
	if to == work {
		*q.sends++
		*q.messages += len(bodies)
	}
	return q.Queues.Send(ctx, to, bodies, delay)
}

// Constraints leave few shards that follow each other. Their messages travel together.
func TestScatteredShardsAreSentTogether(t *testing.T) {
	t.Parallel()
	d := newFixture(t, 300, 1, ofConstrainedKind)
	d.labelChains(func(n int) uint32 { return uint32(n/2) + 1 })
	sends, messages, p := 0, 0, d.Ports
	p.Queues = countedQueues{d.Queues, &sends, &messages}
	c := newCoordinator(p, coordinate.Options{Kinds: constrained(t, schedule.Constraints{Chains: true})})
	if _, err := c.Apply(t.Context(), id, []run.Event{{Kind: run.Reevaluate}}); err != nil {
		t.Fatal(err)
	}
	s := d.state()
	if n := s.Sent(); n < 10 || len(s.InFlight.Chunks) != n || messages != n || sends != (n+99)/100 {
		t.Errorf("%d shards in %d places are sent by %d messages in %d calls", n, len(s.InFlight.Chunks), messages, sends)
	}
}

// ofConstrainedKind makes a run one of the kind that constrained returns.
func ofConstrainedKind(m *record.Manifest) { m.Kind = "constrained" }

// constrained returns a table with a kind that has the constraints.
func constrained(t *testing.T, c schedule.Constraints) kind.Table {
	t.Helper()
	k, err := kind.Table{}.Of(config.KindBatch)
	if err != nil {
		t.Fatal(err)
	}
	k.Name, k.Constraints = "constrained", func(config.Run) schedule.Constraints { return c }
	return kind.Table{}.With(k)
}

// labelChains writes the chain of each shard into the run's only shard table.
func (d fixture) labelChains(of func(shard int) uint32) {
	d.t.Helper()
	table := hosttest.Object(d.t, d.Ports, record.ShardTableKey(id, 0))
	rows, err := shardtable.Parse([]byte(table)[shardtable.HeaderSize:])
	if err != nil {
		d.t.Fatal(err)
	}
	labeled := []byte(table)[:shardtable.HeaderSize]
	for n, r := range rows {
		r.Chain = of(n)
		labeled = r.Append(labeled)
	}
	hosttest.Put(d.t, d.Ports, record.ShardTableKey(id, 0), string(labeled))
}
