package plan_test

import (
	"fmt"
	"strings"
	"testing"

	"rollout/functions/plan"
	"rollout/shared/config"
	"rollout/shared/fault"
	"rollout/shared/host/hosttest"
	"rollout/shared/input"
	"rollout/shared/record"
	"rollout/shared/shardtable"
)

// newTrials returns a planner of trials: two variants, two replications.
func newTrials(t *testing.T, text string) *fixture {
	t.Helper()
	d := newFixture(t, 1, file{text: text})
	d.m.Kind, d.m.Config.Kind = config.KindTrials, config.KindTrials
	d.m.Config.Design = &config.Design{Replications: 2, Order: config.TrialsInterleaved, Chain: "of"}
	d.m.Config.Variants = []config.Variant{{Name: "a"}, {Name: "b"}}
	hosttest.Save(t, d.Ports, record.ManifestKey(id), d.m)
	d.Planner = plan.New(d.Ports, plan.Options{})
	return d
}

// rows returns the rows of all shards of the plan.
func (d *fixture) rows() (out []shardtable.Row) {
	d.t.Helper()
	x := input.NewIndex(d.Ports.Blobs, d.Ports.Docs)
	for n := range d.plan().Shards {
		e, at, err := x.FindShard(d.t.Context(), id, n)
		if err == nil {
			var rows []shardtable.Row
			rows, err = x.Rows(d.t.Context(), id, e, at, 1)
			out = append(out, rows...)
		}
		if err != nil {
			d.t.Fatal(err)
		}
	}
	return out
}

// TestEachTrialIsAShardWithItsVariantAndChain also checks that the plan is complete before a trial
// has a result: a run that is stopped then can be retried.
func TestEachTrialIsAShardWithItsVariantAndChain(t *testing.T) {
	t.Parallel()
	d := newTrials(t, `{"id":1,"prompt":"p","of":"s"}`+"\n"+`{"id":2,"prompt":"q"}`+"\n")
	d.submitted()
	var got []string
	for _, r := range d.rows() {
		got = append(got, fmt.Sprintf("%d:%d/%d", r.Variant, r.Chain, r.Items))
	}
	want := strings.Repeat(" 0:1/1 1:1/1 0:0/1 1:0/1", 2)
	if text := " " + strings.Join(got, " "); text != want {
		t.Fatalf("the shards are %s, want %s", text, want)
	}
	if p := d.plan(); !p.Complete() || p.Items != 8 || p.Shards != 8 || p.Sources() != 2 {
		t.Errorf("the plan is %+v", p)
	}
}

func TestTrialsOfRangesBehindTheFirstAreShardsToo(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	for n := range 40 { // 160 lines of a MiB
		fmt.Fprintf(&b, "{\"id\":%d,\"prompt\":%q}\n", n, strings.Repeat("x", 1<<20))
	}
	d := newTrials(t, b.String())
	d.submitted()
	rows := d.rows()
	for n, r := range rows {
		if r.Items != 1 || r.Variant != uint32(n%2) {
			t.Fatalf("shard %d is %+v", n, r)
		}
	}
	if p := d.plan(); len(rows) != 160 || p.Total != 3 {
		t.Errorf("%d shards in %d ranges", len(rows), p.Total)
	}
}

func TestFileWithoutATaskHasAnEmptyPlan(t *testing.T) {
	t.Parallel()
	d := newTrials(t, "\n\n")
	d.submitted()
	if p := d.plan(); !p.Complete() || p.Items != 0 || p.Problem != "" {
		t.Errorf("%+v", p)
	}
}

func TestLineThatIsNoTaskEndsThePlan(t *testing.T) {
	t.Parallel()
	d := newTrials(t, "no task\n")
	d.submitted()
	if p := d.plan(); p.ProblemKind != record.InputBroken || !strings.Contains(p.Problem, "line 1: it is not valid JSON") {
		t.Errorf("%+v", p)
	}
	if _, err := d.Blobs.Stat(t.Context(), record.AppendedKey(id, 1), ""); !fault.Is(err, fault.NotFound) {
		t.Errorf("trials are written: %v", err)
	}
}
