package coordinate_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"rollout/events"
	"rollout/functions/coordinate"
	"rollout/shared/core/cost"
	"rollout/shared/core/identity"
	"rollout/shared/core/run"
	"rollout/shared/host"
	"rollout/shared/record"
)

// The messages of a run without a token budget have the same bytes as before there were
// allowances, and so has its state.
func TestMessagesSayAnAllowanceOnlyUnderABudget(t *testing.T) {
	t.Parallel()
	for budget, want := range map[int64]int64{0: 0, 8000: 1000} {
		d := newFixture(t, 3, 2, func(m *record.Manifest) { m.Config.Limits.Tokens = budget })
		c := d.coordinator()
		d.apply(c, look)
		ms, err := d.Queues.Receive(t.Context(), work, 100, time.Minute, 0)
		if err != nil || len(ms) == 0 {
			t.Fatalf("%d messages, %v", len(ms), err)
		}
		for _, m := range ms {
			_, p, err := events.Decode(m.Body)
			if err != nil || p.(events.Work).Allowance != want {
				t.Errorf("with a budget of %d a message is %+v, %v", budget, p, err)
			}
			if strings.Contains(string(m.Body), "allowance") != (budget > 0) {
				t.Errorf("with a budget of %d a message is %s", budget, m.Body)
			}
		}
		doc, err := d.Docs.Get(t.Context(), record.CoordinatorKey(id))
		if err != nil || strings.Contains(string(doc.Value), "allowance") != (budget > 0) {
			t.Errorf("with a budget of %d the state is %s, %v", budget, doc.Value, err)
		}
	}
}

func TestShardThatUsedUpItsAllowanceIsSentWithMore(t *testing.T) {
	t.Parallel()
	d := newFixture(t, 3, 2, func(m *record.Manifest) { m.Config.Limits.Tokens = 8000 })
	c := d.coordinator()
	d.apply(c, look)
	d.received(work)
	usedUp := events.ShardReleased{Run: string(id), Shard: 0, Worker: "w1", Attempt: 1, Allowance: 1000, Spent: 1100}
	if left := d.apply(c, usedUp, usedUp); left != 0 {
		t.Errorf("%d events are left", left)
	}
	sent := d.received(host.UrgentQueue("default"))
	if len(sent) != 1 || sent[0].(events.Work).Shard != 0 || sent[0].(events.Work).Allowance <= 1100 {
		t.Errorf("sent %+v", sent)
	}
	d.apply(c, usedUp)
	if again := d.received(host.UrgentQueue("default")); len(again) > 0 {
		t.Errorf("a report that comes again has %+v sent", again)
	}
}

// A budget in dollars travels in millionths, and counts the control plane by its prices.
func TestMessagesSayWhatAShardMaySpendInDollars(t *testing.T) {
	t.Parallel()
	d := newFixture(t, 3, 2, func(m *record.Manifest) { m.Config.Limits.Dollars = 8 })
	list := cost.Prices{Positions: []cost.Position{{Name: "puts", Price: 0.25, Run: 1, Shard: 1}}}
	c := newCoordinator(d.Ports, coordinate.Options{Prices: list})
	d.apply(c, look)
	sent := d.received(work)
	if len(sent) != 1 || sent[0].(events.Work).Allowance != 0 || sent[0].(events.Work).AllowanceMicroUSD != 968_750 {
		t.Fatalf("sent %+v, want an eighth of what $8 leave after $0.25", sent)
	}
	usedUp := events.ShardReleased{Run: string(id), Shard: 0, Worker: "w1", Attempt: 1, AllowanceMicroUSD: 968_750,
		Spent: 500, SpentMicroUSD: 1_000_000}
	d.apply(c, usedUp, usedUp)
	again := d.received(host.UrgentQueue("default"))
	if len(again) != 1 || again[0].(events.Work).AllowanceMicroUSD <= 1_000_000 {
		t.Errorf("sent %+v", again)
	}
	counts := events.Counts{OK: 2, TokenNanoUSD: 1_250_000_000}
	d.apply(c, events.ShardDone{Run: string(id), Shard: 0, Attempt: 2, Worker: "w1", Counts: counts})
	if got := d.state().Spent().MicroUSD; got < 1_750_000 || got > 2_250_000 {
		t.Errorf("$1.25 of tokens, and $0.25 for the run and each shard, are %d millionths", got)
	}
}

func TestRunThatBeginsToStopIsAnnouncedAfterItsControl(t *testing.T) {
	t.Parallel()
	d := newFixture(t, 3, 2, func(m *record.Manifest) { m.Config.Limits.FailFast = true })
	var stopped []identity.RunID
	var control record.Control
	c := newCoordinator(d.Ports, coordinate.Options{Hooks: coordinate.Hooks{OnStopping: func(r identity.RunID) {
		stopped, control = append(stopped, r), d.control()
	}}})
	d.apply(c, look)
	d.apply(c, events.ItemFailed{Run: string(id), Shard: 1})
	d.apply(c, look)
	if !slices.Equal(stopped, []identity.RunID{id}) || control.Desired != record.DesiredEnd ||
		control.Reason != string(run.ReasonFailFast) {
		t.Errorf("announced %v, the control is %+v", stopped, control)
	}
}
