package record

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"rollout/shared/config"
	"rollout/shared/core/interval"
	"rollout/shared/core/run"
	"rollout/shared/core/shard"
	"rollout/shared/fault"
)

func judged() Manifest {
	return Manifest{Run: runID, Pool: "a", ModelURI: "m", ModelID: "1",
		Roles: []Role{{Name: "judge", Pool: "b", ModelURI: "n", ModelID: "2", Sampling: config.Sampling{TopK: new(int)}},
			{Name: "reflect", Pool: "a", ModelURI: "m", ModelID: "1"}}}
}

func TestManifestInRoleNamesTheRolesPoolModelAndSampling(t *testing.T) {
	t.Parallel()
	m := judged()
	got, err := m.InRole(1)
	if err != nil || got.Pool != "b" || got.ModelURI != "n" || got.ModelID != "2" || got.Config.Sampling.TopK == nil {
		t.Errorf("%+v, %v", got, err)
	}
	if got, err := m.InRole(0); err != nil || !cmp.Equal(got, m) {
		t.Errorf("the role of the answer changes the manifest to %+v, %v", got, err)
	}
	if _, err := m.InRole(3); !fault.Is(err, fault.Corrupt) {
		t.Errorf("role 3: %v", err)
	}
	if got := m.Pools(); !slices.Equal(got, []string{"a", "b"}) {
		t.Errorf("pools %v", got)
	}
}

// A further model answers the users' items as role 0 does.
func TestManifestInARoleWithOutputKeepsWhatIsOfTheAnswers(t *testing.T) {
	t.Parallel()
	m := judged()
	m.Dialect, m.Config.Limits.FailFast = "openai", true
	m.Roles[1].Output = true
	for n, want := range []bool{true, false, true} {
		got, err := m.InRole(uint32(n))
		if err != nil || (got.Dialect == "openai") != want || got.Config.Limits.FailFast != want ||
			m.HasOutput(uint32(n)) != want {
			t.Errorf("role %d: %+v, %v; has output: %t", n, got, err, m.HasOutput(uint32(n)))
		}
	}
	if m.HasOutput(3) {
		t.Error("a role that the run does not have has output")
	}
	if got := m.OutputRoles(); !slices.Equal(got, []int{2}) {
		t.Errorf("roles with output: %v", got)
	}
	if got := m.OutputItems([]run.RolePlan{{Items: 1}, {Items: 2}, {Items: 4}}); got != 5 {
		t.Errorf("%d items have output, want 5", got)
	}
}

// What a run asks for itself has request settings of its own, is written in the plain
// dialect, is not graded, and stops no run that a failed item stops.
func TestManifestInRoleLeavesOutWhatIsOfTheAnswersAlone(t *testing.T) {
	t.Parallel()
	m := judged()
	m.Dialect, m.Config.Request = "openai", &config.Request{System: "answer"}
	m.Config.Grades, m.Config.Limits.FailFast = []config.Grade{{Name: "x"}}, true
	m.Roles[0].Request = &config.Request{System: "judge"}
	for n, want := range []string{"answer", "judge"} {
		got, err := m.InRole(uint32(n))
		own := n == 0
		if err != nil || got.Config.Request.System != want || (got.Dialect == "openai") != own ||
			(len(got.Config.Grades) > 0) != own || got.Config.Limits.FailFast != own {
			t.Errorf("role %d: %+v, %v", n, got, err)
		}
	}
	if got, err := m.InRole(2); err != nil || got.Config.Request != nil {
		t.Errorf("the settings of a role without any are %+v, %v", got.Config.Request, err)
	}
}

func TestPlanCountsByRoleFromTheFirstOtherRoleOn(t *testing.T) {
	t.Parallel()
	var p Plan
	p.AddRange(0, RangeResult{Shards: 2, Items: 5})
	if p.Roles != nil {
		t.Errorf("%+v", p.Roles)
	}
	before := p
	p.AddRange(2, RangeResult{Shards: 1, Items: 3})
	p.AddRange(0, RangeResult{Shards: 4, Items: 4})
	want := []run.RolePlan{{Shards: 6, Items: 9}, {}, {Shards: 1, Items: 3}}
	diff := cmp.Diff(want, p.Roles)
	if diff != "" || before.Roles != nil || p.Shards != 7 || p.Items != 12 || p.Merged != 3 {
		t.Errorf("%+v %s", p, diff)
	}
}

func TestOpenShardsAreCountedByPool(t *testing.T) {
	t.Parallel()
	s := run.State{Shards: 9, Done: run.CommitLog{Set: interval.Of(interval.Range{Lo: 0, Hi: 4})}}
	if got := (Manifest{Pool: "a"}).OpenShards(s); !cmp.Equal(got, map[string]int{"a": 5}) {
		t.Errorf("one role: %v", got)
	}
	s.Roles = []run.RoleState{{RolePlan: run.RolePlan{Shards: 2}, Done: 2}, {RolePlan: run.RolePlan{Shards: 3}, Done: 1},
		{RolePlan: run.RolePlan{Shards: 4}, Done: 1, Counts: shard.Counts{OK: 1}}}
	if got := judged().OpenShards(s); !cmp.Equal(got, map[string]int{"a": 3, "b": 2}) {
		t.Errorf("three roles: %v", got)
	}
	if got := (Manifest{Pool: "a"}).OpenShards(run.State{}); len(got) != 0 {
		t.Errorf("nothing planned: %v", got)
	}
	if got := judged().NeededPools(s); !slices.Equal(got, []string{"a", "b"}) {
		t.Errorf("three roles need the pools %v", got)
	}
	s.Roles[2].Done, s.Roles[1].Done = 4, 3
	if got := judged().NeededPools(s); !slices.Equal(got, []string{"a"}) {
		t.Errorf("with all done, the pools %v are needed", got)
	}
	s = s.WithRoles([]run.RolePlan{{}, {Shards: 4}})
	if got := judged().NeededPools(s); !slices.Equal(got, []string{"b"}) {
		t.Errorf("with more planned, the pools %v are needed", got)
	}
}
