package run

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"rollout/shared/core/interval"
	"rollout/shared/core/shard"
)

func TestStateOfOneRoleHasNoCountsByRole(t *testing.T) {
	t.Parallel()
	s, _ := Step(New(testRun), Observed{Shards: 2, Items: 2}, Rules{}, nil, epoch)
	s, _ = Step(s, Observed{Shards: 2, Items: 2}, Rules{}, []Event{{Kind: ShardDone, Counts: shard.Counts{OK: 1}}}, epoch)
	if b, _ := json.Marshal(s); strings.Contains(string(b), "roles") {
		t.Errorf("%s", b)
	}
}

// What a judge can't answer is no failed item of the users; what another model can't answer is one.
func TestAFailureOfARoleWithoutOutputDoesNotEndAFailFastRun(t *testing.T) {
	t.Parallel()
	w := Observed{Shards: 3, Items: 3, Roles: []RolePlan{{1, 1}, {1, 1}, {1, 1}}}
	rules := Rules{FailFast: true, OutputRoles: []int{2}}
	failed := shard.Counts{Failed: 1, ByClass: map[string]int{"engine": 1}}
	for role, want := range []Reason{ReasonFailFast, "", ReasonFailFast} {
		s, _ := Step(New(testRun), w, rules, nil, epoch)
		s, _ = Step(s, w, rules, []Event{{Kind: ShardDone, Shard: role, Role: role, Counts: failed}}, epoch)
		if s.Reason != want || s.Done.Set.Len() != 1 {
			t.Errorf("role %d: the run ends for %q with %d done shards, want %q", role, s.Reason, s.Done.Set.Len(), want)
		}
	}
}

// TestRolesAddUpToTheRun draws plans that grow by ranges of any role, and shards
// that are done in any order, some of them twice.
func TestRolesAddUpToTheRun(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s := New(testRun)
		var w Observed
		rules := Rules{OutputRoles: rapid.SliceOfDistinct(rapid.IntRange(1, 3), rapid.ID[int]).Draw(t, "with output")}
		var roleOf []int // by shard
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			if rapid.Bool().Draw(t, "grows") {
				role, n := rapid.IntRange(0, 3).Draw(t, "role"), rapid.IntRange(1, 5).Draw(t, "shards")
				if role > 0 || len(w.Roles) > 0 { // as record.Plan.AddRange
					grown := append([]RolePlan(nil), w.Roles...)
					if len(grown) == 0 {
						grown = []RolePlan{{w.Shards, w.Items}}
					}
					for len(grown) <= role {
						grown = append(grown, RolePlan{})
					}
					grown[role].Shards += n
					grown[role].Items += uint64(n)
					w.Roles = grown
				}
				w.Shards, w.Items = w.Shards+n, w.Items+uint64(n)
				for range n {
					roleOf = append(roleOf, role)
				}
			}
			var evs []Event
			for range rapid.IntRange(0, 6).Draw(t, "events") {
				if s.NextShard == 0 {
					break
				}
				n := rapid.IntRange(0, s.NextShard-1).Draw(t, "shard")
				evs = append(evs, Event{Kind: ShardDone, Shard: n, Role: roleOf[n], Counts: shard.Counts{OK: 1 + n%2,
					Failed: n % 3, ByClass: map[string]int{"refused": n % 3}, PromptTokens: int64(n), WastedTokens: 2}})
			}
			before, _ := json.Marshal(s)
			next, rejected := Step(s, w, rules, evs, epoch)
			if after, _ := json.Marshal(s); string(before) != string(after) || len(rejected) > 0 {
				t.Fatalf("the step changed its argument, or rejected %v", rejected)
			}
			s = next
		}
		if len(s.Roles) == 0 {
			return
		}
		var planned RolePlan
		var tokens, wasted int64
		done := 0
		for _, r := range s.Roles {
			planned.Shards, planned.Items = planned.Shards+r.Shards, planned.Items+r.Items
			tokens, wasted, done = tokens+r.Counts.PromptTokens, wasted+r.Counts.WastedTokens, done+r.Done
		}
		if planned.Shards != s.Shards || planned.Items != s.Items || done != s.Done.Set.Len() ||
			tokens != s.Counts.PromptTokens || wasted != s.Counts.WastedTokens {
			t.Fatalf("%+v do not add up to %+v", s.Roles, s)
		}
		var answer shard.Counts
		for n, r := range s.Roles {
			if n == 0 || slices.Contains(rules.OutputRoles, n) {
				answer.Add(r.Counts)
			}
		}
		if answer.OK != s.Counts.OK || answer.Failed != s.Counts.Failed ||
			answer.ByClass["refused"] != s.Counts.ByClass["refused"] {
			t.Fatalf("the run counts %+v, the roles with output %+v", s.Counts, answer)
		}
	})
}

// What a child keeps is done from the beginning, also where its first steps have passed it before
// the plan has roles.
func TestKeptShardsAreDoneInTheirRoles(t *testing.T) {
	t.Parallel()
	w := Observed{Shards: 4, Items: 4, Pool: 4, KeptUntil: 4, Kept: []interval.Range{{Lo: 0, Hi: 3}},
		KeptCounts: shard.Counts{OK: 3, Kept: 3},
		KeptRoles: []KeptRole{{Shards: 1, Counts: shard.Counts{OK: 1, Kept: 1}},
			{Shards: 2, Counts: shard.Counts{OK: 2, Kept: 2}}}}
	rules := Rules{OutputRoles: []int{1}}
	s, _ := Step(New(testRun), w, rules, nil, epoch)
	w.Complete, w.Roles = true, []RolePlan{{1, 1}, {3, 3}}
	s, _ = Step(s, w, rules, nil, epoch)
	if s.Counts.OK != 3 || len(s.Roles) != 2 || s.Roles[0].Done != 1 || s.Roles[1].Done != 2 || s.Roles[1].Counts.OK != 2 {
		t.Fatalf("%+v, %+v", s.Counts, s.Roles)
	}
	s, _ = Step(s, w, rules, []Event{{Kind: ShardDone, Shard: 3, Role: 1, Counts: shard.Counts{OK: 1}}}, epoch)
	if s.Counts.OK != 4 || s.Roles[1].Done != 3 || s.Roles[1].Counts.OK != 3 || s.Phase != Finalizing {
		t.Errorf("%s: %+v, %+v", s.Phase, s.Counts, s.Roles)
	}
}
