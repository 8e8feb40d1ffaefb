package run

import (
	"maps"
	"slices"

	"rollout/shared/core/shard"
)

// RolePlan is how much of a run is planned for one role.
type RolePlan struct {
	Shards int    `json:"shards"`
	Items  uint64 `json:"items"`
}

// RoleState is the progress of one role of a run. Role 0 and
// Rules.OutputRoles answer the users' items; other roles do work for the run itself, such as
// judging its answers.
type RoleState struct {
	RolePlan
	Done   int          `json:"done"` // shards
	Counts shard.Counts `json:"counts"`
}

// KeptRole is what a child run keeps of one role from its parent.
type KeptRole struct {
	Shards int          `json:"shards"`
	Counts shard.Counts `json:"counts"`
}

// cloneRoles returns an independent copy.
func cloneRoles(roles []RoleState) []RoleState {
	out := slices.Clone(roles)
	for i := range out {
		out[i].Counts.ByClass = maps.Clone(out[i].Counts.ByClass)
		out[i].Counts.Finish = maps.Clone(out[i].Counts.Finish)
	}
	return out
}

// WithRoles returns the state with how much is planned for each role by now. A run
// whose plan has only role 0 keeps no counts by role. The first shards of another role
// find the counts of role 0 in those of the run. What a child keeps is counted apart: see
// Observed.KeptRoles.
func (s State) WithRoles(planned []RolePlan) State {
	if len(planned) == 0 {
		return s
	}
	s.Roles = cloneRoles(s.Roles)
	if len(s.Roles) == 0 {
		counts := s.Counts
		counts.ByClass, counts.Finish, counts.Machines = maps.Clone(counts.ByClass), maps.Clone(counts.Finish), nil
		s.Roles = []RoleState{{Done: s.Done.Set.Len() - s.KeptShards, Counts: counts}}
	}
	for n, p := range planned {
		if n == len(s.Roles) {
			s.Roles = append(s.Roles, RoleState{})
		}
		s.Roles[n].RolePlan = RolePlan{max(s.Roles[n].Shards, p.Shards), max(s.Roles[n].Items, p.Items)}
	}
	return s
}

// countRole adds a shard that is newly done to its role.
func (d *decider) countRole(e Event) {
	if e.Role < len(d.Roles) {
		d.Roles[e.Role].Done++
		c := e.Counts
		c.Machines = nil // the run's own counts have them
		d.Roles[e.Role].Counts.Add(c)
	}
}

// keepRoles counts what a child keeps from its parent. Its kept shards are done from the
// beginning: no pool is needed for them.
func (d *decider) keepRoles(kept []KeptRole) {
	for n := range min(len(kept), len(d.Roles)) {
		d.Roles[n].Done += kept[n].Shards
		d.Roles[n].Counts.Add(kept[n].Counts)
	}
}

// finalRoles takes over the counts of the written files.
func (d *decider) finalRoles(counts []shard.Counts) {
	for n := range min(len(counts), len(d.Roles)) {
		d.Roles[n].Counts = counts[n]
	}
}
