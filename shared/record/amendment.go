package record

import (
	"strings"

	"rollout/shared/core/identity"
	"rollout/shared/core/run"
	"rollout/shared/core/shard"
	"rollout/shared/figures"
)

// Amendment is what a child adds to the trials of its parent:
//
//	tasks × variants × replications of the child, less those of the parent ─▶ the child's own range
//
// The child's config and its Manifest.Tasks have all that it consists of. A trial has the id and the
// seed that it would have in a run that had all of them from the beginning, and its item index is
// behind those of the parent.
type Amendment struct {
	// Replications is how often each task is tried under each variant, 0 if that stays; Variants
	// are those that are added, by name; Tasks is the name of the file of further tasks, "" for
	// none.
	Replications int      `json:"replications,omitempty"`
	Variants     []string `json:"variants,omitempty"`
	Tasks        string   `json:"tasks,omitempty"`
}

// String renders the amendment for people. Example: "5 replications, variant terse".
func (a Amendment) String() string {
	var parts []string
	if a.Replications > 0 {
		parts = append(parts, figures.Of(a.Replications, "replication"))
	}
	if n := len(a.Variants); n > 0 {
		parts = append(parts, figures.Plural(n, "variant ", "variants ")+strings.Join(a.Variants, " and "))
	}
	if a.Tasks != "" {
		parts = append(parts, "the tasks of "+a.Tasks)
	}
	return strings.Join(parts, ", ")
}

// TrialStage is how large a run of trials was before or after it was amended. The trials of a stage
// are the first tasks, variants and replications of the next one.
type TrialStage struct {
	Tasks        int `json:"tasks"`
	Variants     int `json:"variants"`
	Replications int `json:"replications"`
}

// Trials returns how many trials the stage has.
func (s TrialStage) Trials() int { return s.Tasks * s.Variants * s.Replications }

// Inheritance is the part of a child's plan that its ancestors decided. The objects of a plan
// belong to the runs that made them:
//
//	range    0 1 2 3 │ 4 5 │ 6 7        source  0 1 │ 2 │ 3
//	          Plan   │  A  │  B                Plan │ A │ B      with Amended of A and B
type Inheritance struct {
	// Plan is the run whose plan objects the child uses: its oldest ancestor.
	Plan identity.RunID `json:"plan"`
	// Kept counts the items of the shards of which the child asks nothing again.
	Kept shard.Counts `json:"kept"`
	// KeptRoles is Kept by role, from role 0 on, in a run of several roles.
	KeptRoles []run.KeptRole `json:"kept_roles,omitempty"`
	// Shards is how many shards the parent has. It is 0 if the child adds none.
	Shards int `json:"shards,omitempty"`
	// Amended are the runs that added to the plan, in their order, the child included.
	Amended []AddedRanges `json:"amended,omitempty"`
	// IDs are the lists of ids of ancestors in the plan of a child that has added to it, whose own
	// are in Plan.IDs.
	IDs []Hashes `json:"ids,omitempty"`
}

// AddedRanges says where what an amended run added to the plan begins.
type AddedRanges struct {
	Run    identity.RunID `json:"run"`
	Source int            `json:"source"`
	Range  int            `json:"range"`
}

// MaxAmendments bounds how often a run is amended, one after the other: plans stay small.
const MaxAmendments = 64

// RangeOwner returns the run to which the objects of a range of the run's plan belong.
func (p Plan) RangeOwner(run identity.RunID, rng int) identity.RunID {
	return p.owner(run, func(a AddedRanges) bool { return a.Range <= rng })
}

// SourceOwner is RangeOwner for the object of a source.
func (p Plan) SourceOwner(run identity.RunID, source int) identity.RunID {
	return p.owner(run, func(a AddedRanges) bool { return a.Source <= source })
}

func (p Plan) owner(run identity.RunID, begins func(AddedRanges) bool) identity.RunID {
	if p.Inherited == nil {
		return run
	}
	owner := p.Inherited.Plan
	for _, a := range p.Inherited.Amended {
		if begins(a) {
			owner = a.Run
		}
	}
	return owner
}

// InheritedShards returns how many shards the plan has from the run's parent: the first ones.
func (p Plan) InheritedShards() int {
	switch {
	case p.Inherited == nil:
		return 0
	case p.Inherited.Shards > 0:
		return p.Inherited.Shards
	}
	return p.Shards
}

// IDLists returns the lists of the ids of the plan, each of one run.
func (p Plan) IDLists() []Hashes {
	if p.Inherited == nil {
		return p.IDs
	}
	return append(p.Inherited.IDs[:len(p.Inherited.IDs):len(p.Inherited.IDs)], p.IDs...)
}
