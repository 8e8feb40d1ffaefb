package plan_test

import (
	"bytes"
	"strings"
	"testing"

	"rollout/events"
	"rollout/functions/plan"
	"rollout/shared/core/identity"
	"rollout/shared/core/run"
	"rollout/shared/host"
	"rollout/shared/host/hosttest"
	"rollout/shared/input"
	"rollout/shared/record"
	"rollout/shared/shardtable"
)

// newAmended returns a planner of trials that have ended, and the manifest of a child that tries each
// task three times.
func newAmended(t *testing.T) (*fixture, record.Manifest) {
	t.Helper()
	return newAmendedOf(t, func(*fixture) {})
}

// newAmendedOf is newAmended of trials that edit has changed.
func newAmendedOf(t *testing.T, edit func(*fixture)) (*fixture, record.Manifest) {
	t.Helper()
	d := newTrials(t, `{"id":1,"prompt":"p","of":"s"}`+"\n"+`{"id":2,"prompt":"q"}`+"\n")
	edit(d)
	d.submitted()
	const row = "{\"completion\":\"a\"}\n"
	var entries []byte
	for range 8 {
		entries = shardtable.FileEntry{Outputs: uint64(len(row)), OK: 1}.Append(entries)
	}
	hosttest.Put(t, d.Ports, record.FileEntriesKey(id), string(entries))
	hosttest.Put(t, d.Ports, record.OutputKey(id, record.CompletionsFile), strings.Repeat(row, 8))
	hosttest.Put(t, d.Ports, record.OutputKey(id, record.ErrorsFile), "")
	s := run.New(id)
	s.Phase = run.Completed
	hosttest.Save(t, d.Ports, record.CoordinatorKey(id), s)
	m := d.m
	m.Run = "01JD2ZQ4T5W0M1X9YB7R3K8CVF"
	design := *m.Config.Design
	design.Replications = 3
	m.Config.Design = &design
	m.Parent = &record.Parent{Run: id, Amend: &record.Amendment{Replications: 3}}
	m.Stages = []record.TrialStage{{Tasks: 2, Variants: 2, Replications: 2}, {Tasks: 2, Variants: 2, Replications: 3}}
	hosttest.Save(t, d.Ports, record.ManifestKey(m.Run), m)
	return d, m
}

// amended plans the child, as if the request came again with a planner that knows nothing.
func (d *fixture) amended(child identity.RunID) record.Plan {
	d.t.Helper()
	d.Planner = plan.New(d.Ports, plan.Options{})
	if err := d.Submitted(d.t.Context(), events.RunSubmitted{Run: string(child)}); err != nil {
		d.t.Fatal(err)
	}
	for _, e := range d.received(host.PlanQueue) {
		if err := d.CutRange(d.t.Context(), e.(events.PlanRange)); err != nil {
			d.t.Fatal(err)
		}
	}
	return hosttest.Load[record.Plan](d.t, d.Ports, record.PlanKey(child))
}

// TestAmendedPlanAddsARangeBehindItsParents reads the shards of the child: the first ones from the
// plan of the parent, with all rows kept, and the others from its own.
func TestAmendedPlanAddsARangeBehindItsParents(t *testing.T) {
	t.Parallel()
	d, m := newAmended(t)
	p := d.amended(m.Run)
	if !p.Complete() || p.Shards != 12 || p.Items != 12 || p.InheritedShards() != 8 || p.Inherited.Kept.OK != 8 {
		t.Fatalf("the plan is %+v, inherited %+v", p, p.Inherited)
	}
	x := input.NewIndex(d.Ports.Blobs, d.Ports.Docs)
	for n := range p.Shards {
		e, row, err := x.FindShard(t.Context(), m.Run, n)
		if err != nil {
			t.Fatal(err)
		}
		sh, err := x.LoadShard(t.Context(), m, e.Range, row)
		if err != nil || len(sh.Lines) != 1 || sh.FirstItem != uint64(n) {
			t.Fatalf("shard %d is %+v (%v)", n, sh, err)
		}
		if isNew := bytes.Contains(sh.Lines[0].Bytes, []byte(`"replication":2`)); isNew != (n >= 8) {
			t.Errorf("shard %d is %s", n, sh.Lines[0].Bytes)
		}
		in, err := x.Inherited(t.Context(), m.Run, n)
		if err != nil || in.Touched != (n >= 8) || in.Items() != map[bool]int{false: 1}[n >= 8] {
			t.Errorf("shard %d inherits %+v (%v)", n, in, err)
		}
	}
	keys, err := x.AppendedKeys(t.Context(), m, p.Shards)
	if err != nil || len(keys) != 2 || keys[0] != record.AppendedKey(id, 1) || keys[1] != record.AppendedKey(m.Run, 2) {
		t.Errorf("the objects of its trials are %v (%v)", keys, err)
	}
}

// TestRepeatedAmendmentKeepsThePlan asks for the plan of a child again when its range is merged.
func TestRepeatedAmendmentKeepsThePlan(t *testing.T) {
	t.Parallel()
	d, m := newAmended(t)
	first := d.amended(m.Run)
	if again := d.amended(m.Run); again.Merged != first.Merged || again.Shards != first.Shards || !again.Complete() {
		t.Errorf("the plan became %+v", again)
	}
}
