package coordinate_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"rollout/events"
	"rollout/functions/coordinate"
	"rollout/shared/config"
	"rollout/shared/core/health"
	"rollout/shared/core/run"
	"rollout/shared/core/scaling"
	"rollout/shared/core/shard"
	"rollout/shared/host"
	"rollout/shared/host/hosttest"
	"rollout/shared/input/inputtest"
	"rollout/shared/record"
)

// newJudged plans a run of 3 shards of answers, and then 2 of the role judge in the
// pool judges, with 2 items each.
func newJudged(t *testing.T) fixture {
	t.Helper()
	d := fixture{t: t, Ports: hosttest.New()}
	m := inputtest.WithJudge(inputtest.Manifest(2))
	inputtest.Plan(t, d.Ports, m, inputtest.Prompts(0, 6), inputtest.Prompts(6, 4))
	return d
}

// shardsIn empties the queue and returns the shards of its work messages.
func (d fixture) shardsIn(q string) (out []int) {
	for _, p := range d.received(q) {
		out = append(out, p.(events.Work).Shard)
	}
	slices.Sort(out)
	return out
}

func TestShardIsSentToThePoolOfItsRole(t *testing.T) {
	t.Parallel()
	d := newJudged(t)
	var sent []string
	c := newCoordinator(d.Ports, coordinate.Options{Hooks: coordinate.Hooks{
		OnSent: func(pool string, n scaling.Demand) { sent = append(sent, fmt.Sprint(pool, " ", n.OpenShards)) },
	}})
	d.apply(c, look)
	if got := d.shardsIn(work); !slices.Equal(got, []int{0, 1, 2}) {
		t.Errorf("the pool of the answer gets %v", got)
	}
	if got := d.shardsIn(host.WorkQueue("judges")); !slices.Equal(got, []int{3, 4}) {
		t.Errorf("the pool of the judge gets %v", got)
	}
	slices.Sort(sent)
	if want := []string{"default 3", "judges 2"}; !slices.Equal(sent, want) {
		t.Errorf("demand is %v, want %v", sent, want)
	}
	d.apply(c, events.ShardLost{Run: string(id), Shard: 4}, events.ShardLost{Run: string(id), Shard: 0})
	if got := d.shardsIn(host.UrgentQueue("judges")); !slices.Equal(got, []int{4}) {
		t.Errorf("a lost shard of the judge is sent again as %v", got)
	}
	if got := d.shardsIn(host.UrgentQueue("default")); !slices.Equal(got, []int{0}) {
		t.Errorf("a lost shard of the answer is sent again as %v", got)
	}
}

func TestProgressIsCountedByRole(t *testing.T) {
	t.Parallel()
	d := newJudged(t)
	c := d.coordinator()
	d.apply(c, look)
	report := func(n int, counts events.Counts) events.ShardDone {
		return events.ShardDone{Run: string(id), Shard: n, Attempt: 1, Worker: "w1", Counts: counts}
	}
	failed := events.Counts{OK: 1, Failed: 1, ByClass: map[string]int{"refused": 1}, PromptTokens: 3, WastedTokens: 1}
	d.apply(c, report(0, events.Counts{OK: 2, PromptTokens: 5, CompletionTokens: 7}), report(3, failed), report(3, failed))
	s := d.state()
	want := []run.RoleState{
		{RolePlan: run.RolePlan{Shards: 3, Items: 6}, Done: 1,
			Counts: shard.Counts{OK: 2, PromptTokens: 5, CompletionTokens: 7}},
		{RolePlan: run.RolePlan{Shards: 2, Items: 4}, Done: 1, Counts: host.ShardCounts(failed)},
	}
	if diff := cmp.Diff(want, s.Roles); diff != "" {
		t.Errorf("by role (-want +got):\n%s", diff)
	}
	total := shard.Counts{OK: 2, PromptTokens: 8, CompletionTokens: 7, WastedTokens: 1}
	if diff := cmp.Diff(total, s.Counts); diff != "" {
		t.Errorf("items of the answer, tokens of all (-want +got):\n%s", diff)
	}
}

func TestRunPausesWhenThePoolOfOneRoleIsGone(t *testing.T) {
	t.Parallel()
	d := newJudged(t)
	d.apply(newCoordinator(d.Ports, coordinate.Options{Pools: []config.Pool{{Name: "default"}}}), look)
	if c := d.control(); c.Desired != record.DesiredPause || !strings.Contains(c.Reason, "no pool judges") {
		t.Errorf("control is %+v", c)
	}
}

func TestPauseWaitsForHoldersInThePoolsOfAllRoles(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newJudged(t)
		c := d.coordinator()
		d.apply(c, look)
		hosttest.Save(t, d.Ports, record.ControlKey(id),
			record.Control{Schema: 1, Sequence: 1, Desired: record.DesiredPause})
		d.apply(c, look)
		<-time.After(5 * time.Second)
		timings := host.Timings(config.DefaultDeployment().Health)
		hosttest.Save(t, d.Ports, record.HeartbeatKey("w1"), health.Heartbeat{Schema: 1, Worker: "w1", Pool: "judges",
			At: time.Now(), DueAt: timings.Due(time.Now()), Holds: []health.HeldShard{{Run: id, Shard: 3, Attempt: 1}}})
		d.apply(c, look)
		if s := d.state(); s.Phase != run.Pausing {
			t.Errorf("the run is %s while a judge holds a shard", s.Phase)
		}
	})
}

// The workers of a pool make room for more shards only while the run has shards
// for them.
func TestWindowFollowsThePoolsThatHaveOpenShards(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const answers, judged = 1, 900
		d := fixture{t: t, Ports: hosttest.New()}
		m := inputtest.WithJudge(inputtest.Manifest(1))
		inputtest.Plan(t, d.Ports, m, inputtest.Prompts(0, answers), inputtest.Prompts(answers, judged))
		timings := host.Timings(config.DefaultDeployment().Health)
		beat := func(pool string) {
			hosttest.Save(t, d.Ports, record.HeartbeatKey(pool), health.Heartbeat{Schema: 1, Worker: pool, Pool: pool,
				MaxInFlight: 64, At: time.Now(), DueAt: timings.Due(time.Now())})
		}
		beat("default")
		c := d.coordinator()
		d.apply(c, look)
		if n := d.state().NextShard; n != 4*(1+2*64) {
			t.Errorf("%d shards are sent for the answers' pool alone", n)
		}
		d.apply(c, done(0, 1)) // the answers are in
		sent := d.state().NextShard
		for n := range 200 {
			d.apply(c, done(1+n, 1))
		}
		if n := d.state().NextShard; n != sent {
			t.Errorf("%d more shards are sent without a worker of the judges", n-sent)
		}
		beat("judges")
		time.Sleep(timings.Interval / 2) // heartbeats may be remembered for so long
		d.apply(c, done(201, 1))
		if n := d.state().NextShard; n != sent+201 {
			t.Errorf("%d more shards are sent with a worker of the judges", n-sent)
		}
	})
}
