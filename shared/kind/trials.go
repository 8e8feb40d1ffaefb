package kind

import (
	"context"
	"fmt"
	"io"
	"iter"
	"slices"
	"strings"

	"rollout/shared/config"
	"rollout/shared/core/schedule"
	"rollout/shared/dialect"
	"rollout/shared/fault"
	"rollout/shared/record"
	"rollout/shared/trials"
)

// trialsKind answers each task of its input under each variant, several times each. Its plan is
// an object that it appends, with a line for each trial in the order of its schedule, and then one
// for each judge:
//
//	tasks ─▶ trials, each a shard ─▶ answers with scores ─▶ lines of judge 0 ─▶ … ─▶ complete ─▶ artifacts
//
// Package trials has the formats.
func trialsKind() Kind {
	return Kind{Name: config.KindTrials, Executor: config.ExecutorInfer, ConfigOf: trialsConfig,
		Complete: completeTrials, Roles: trialRoles, OwnLines: true,
		Appends: trialObjects, RoleOf: trialsRoleOf, Grow: appendTrials, Amend: amendTrials,
		AmendConfig: amendConfig, ShardOf: trialShard, Constraints: trialConstraints, Looks: trialLooks(),
		Artifacts: trialsArtifacts, Facts: trialsFacts(), Retries: true}
}

// trialsConfig is Kind.ConfigOf of trials: their items are lines of the plain dialect, which carry
// the task under that name.
func trialsConfig(c config.Run) config.Run {
	c.Input.Dialect = string(dialect.Plain)
	c.Grades = slices.Clone(c.Grades)
	for n := range c.Grades {
		if g := &c.Grades[n]; g.Expected != "" {
			g.Expected = taskMember + g.Expected
		}
	}
	return c
}

// taskMember is the member of an item's line that has the task.
const taskMember = "task."

// amendConfig is Kind.AmendConfig of trials.
func amendConfig(c config.Run, replications int, variants []config.Variant) (config.Run, error) {
	c.Input.Dialect = "" // as users write it
	c.Grades = slices.Clone(c.Grades)
	for n := range c.Grades {
		c.Grades[n].Expected = strings.TrimPrefix(c.Grades[n].Expected, taskMember)
	}
	c, err := c.Amend(replications, variants)
	return trialsConfig(c), err
}

// completeTrials is Kind.Complete of trials.
func completeTrials(ctx context.Context, m *record.Manifest, at Site) error {
	if len(m.Inputs) != 1 {
		return fault.New(fault.Invalid, "a run of trials has one file of tasks, not %d", len(m.Inputs))
	}
	return CompletePrompts(ctx, m, at)
}

// trialRoles is Kind.Roles of trials: judges come first, so that an amendment adds roles behind
// those that there are. Each further model that variants name has a role, whose name has that of
// the first of these variants.
func trialRoles(c config.Run) []Role {
	roles := judgeRoles(c)
	for i, v := range c.Variants {
		if v.Model == "" || v.Model == c.Model.URI ||
			slices.ContainsFunc(roles, func(r Role) bool { return r.Output && r.Model.URI == v.Model }) {
			continue
		}
		roles = append(roles, Role{Name: record.RoleAnswer + "-" + v.Name, Key: fmt.Sprintf("variant[%d].model", i),
			Model: config.Model{URI: v.Model}, Sampling: c.Sampling, Request: c.Request, Graded: true, Output: true})
	}
	return roles
}

// trialObjects is Kind.Appends of trials: the trials, and what each judge reads.
func trialObjects(c config.Run) int { return 1 + judgeCount(c) }

// trialsRoleOf is Kind.RoleOf of trials: trials have roles of their own, by ShardOf.
func trialsRoleOf(_ context.Context, a Appended) (string, error) {
	if a.Input < a.Manifest.JudgeInput(0) {
		return record.RoleAnswer, nil
	}
	return judgeRole(a), nil
}

// appendTrials is Kind.Grow of trials.
func appendTrials(ctx context.Context, g Growth, w io.Writer) error {
	if g.Input >= g.Manifest.JudgeInput(0) {
		return askJudge(ctx, g, w)
	}
	return trials.Append(ctx, g.Blobs, g.Manifest, g.Source, w)
}

// amendTrials is Kind.Amend of trials.
func amendTrials(ctx context.Context, a Amended, w io.Writer) error {
	return trials.Amend(ctx, trials.Amended{Blobs: a.Blobs, Manifest: a.Manifest, Tasks: a.Tasks, First: a.First}, w)
}

// trialShard is Kind.ShardOf of trials.
func trialShard(m record.Manifest, line []byte) (schedule.Attributes, error) {
	variant, chain, err := trials.ShardOf(m, line)
	if err != nil {
		return schedule.Attributes{}, err
	}
	role, err := m.RoleOfModel(m.Config.Variants[variant].Model)
	return schedule.Attributes{Variant: variant, Chain: chain, Role: role, Items: 1}, err
}

// trialConstraints is Kind.Constraints of trials: those of its design and of its variants.
func trialConstraints(c config.Run) schedule.Constraints {
	d := c.DesignOf()
	out := schedule.Constraints{MaxInFlight: d.MaxConcurrency, Chains: d.Chain != ""}
	if slices.ContainsFunc(c.Variants, func(v config.Variant) bool { return v.MaxParallelTrials > 0 }) {
		for _, v := range c.Variants {
			out.OfVariants = append(out.OfVariants, v.MaxParallelTrials)
		}
	}
	return out
}

// trialLooks is Kind.Looks of trials.
func trialLooks() *Looks {
	return &Looks{
		Places: trials.LookPlaces,
		Decide: func(ctx context.Context, l Look) (record.Look, error) {
			return trials.Look{Blobs: l.Blobs, Manifest: l.Manifest, Number: l.Number, Places: l.Places, Trials: l.Shards,
				Ended: trialEnds(l.Items)}.Decide(ctx)
		},
	}
}

// trialEnds returns how the trials ended that items are.
func trialEnds(items iter.Seq2[Item, error]) iter.Seq2[trials.TrialEnd, error] {
	return func(yield func(trials.TrialEnd, error) bool) {
		for it, err := range items {
			if !yield(trials.TrialEnd{Index: int(it.Index), Class: it.Class, Row: it.Row}, err) {
				return
			}
		}
	}
}

// trialsArtifacts is Kind.Artifacts of trials.
func trialsArtifacts(ctx context.Context, e Ended, sum *record.Summary) error {
	out, err := trials.Ended{Blobs: e.Blobs, Manifest: e.Manifest, Trials: e.Appended, Items: sum.Items,
		Looks: e.Looks, Deployment: e.Deployment, Roles: sum.Roles}.Publish(ctx)
	sum.Trials = &out
	return err
}

// trialsFacts is Kind.Facts of trials: which trial an item is.
func trialsFacts() *Facts {
	return &Facts{
		Columns: []Column{{Name: "task"}, {Name: "variant"}, {Name: "replication", Integer: true},
			{Name: "schedule_idx", Integer: true}, {Name: "slot", Integer: true}, {Name: "trial_id"}},
		ValuesOf: func(m record.Manifest, line []byte) ([]Value, error) {
			t, err := trials.TrialOf(m.Config, line)
			if err != nil {
				return nil, err
			}
			return []Value{{Text: &t.Task}, {Text: &t.Variant}, {Integer: new(int64(t.Replication))},
				{Integer: new(int64(t.Index))}, {Integer: new(int64(t.Slot))}, {Text: &t.ID}}, nil
		},
	}
}
