package plan_test

import (
	"slices"
	"testing"

	"rollout/shared/config"
	"rollout/shared/core/run"
	"rollout/shared/core/shard"
	"rollout/shared/host/hosttest"
	"rollout/shared/record"
)

// withModel gives the variant b of the trials a model of its own.
func (d *fixture) withModel() {
	d.t.Helper()
	d.m.Config.Variants = []config.Variant{{Name: "a"}, {Name: "b", Model: "large"}}
	d.m.Roles = []record.Role{{Name: "answer-b", Pool: "large", ModelURI: "large", ModelID: d.m.ModelID, Output: true}}
	hosttest.Save(d.t, d.Ports, record.ManifestKey(id), d.m)
}

func TestTrialsOfAFurtherModelAreShardsOfItsRole(t *testing.T) {
	t.Parallel()
	d := newTrials(t, `{"id":1,"prompt":"p"}`+"\n"+`{"id":2,"prompt":"q"}`+"\n")
	d.withModel()
	d.submitted()
	for n, r := range d.rows() {
		if r.Role != r.Variant || r.Variant != uint32(n%2) {
			t.Errorf("shard %d is %+v", n, r)
		}
	}
	each := run.RolePlan{Shards: 4, Items: 4}
	if p := d.plan(); !p.Complete() || !slices.Equal(p.Roles, []run.RolePlan{each, each}) || len(p.IDs) != 1 ||
		p.IDs[0].Count != 8 {
		t.Errorf("the plan is %+v", p)
	}
}

// What a child keeps is counted by role: no machine is asked for what is done.
func TestChildOfTrialsCountsWhatItKeepsByRole(t *testing.T) {
	t.Parallel()
	d, m := newAmendedOf(t, (*fixture).withModel)
	m.Config.Variants, m.Roles = d.m.Config.Variants, d.m.Roles
	hosttest.Save(t, d.Ports, record.ManifestKey(m.Run), m)
	p := d.amended(m.Run)
	kept := run.KeptRole{Shards: 4, Counts: shard.Counts{OK: 4, Kept: 4}}
	planned := run.RolePlan{Shards: 6, Items: 6}
	if got := p.Inherited.KeptRoles; len(got) != 2 || got[0].Shards != kept.Shards || got[1].Shards != kept.Shards ||
		got[1].Counts.OK != kept.Counts.OK || got[1].Counts.Kept != kept.Counts.Kept {
		t.Errorf("it keeps %+v", got)
	}
	if !slices.Equal(p.Roles, []run.RolePlan{planned, planned}) {
		t.Errorf("its roles are %+v", p.Roles)
	}
}
