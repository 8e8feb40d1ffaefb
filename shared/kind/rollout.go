package kind

import (
	"cmp"
	"context"
	"io"
	"slices"

	"rollout/shared/config"
	"rollout/shared/dialect"
	"rollout/shared/fault"
	"rollout/shared/record"
	"rollout/shared/rollout"
)

// rolloutKind answers each ticket of its input several times, in global batches, and
// selects an answer of each. Its plan is what it appends:
//
//	tickets ─▶ batch 0 ─▶ answers ─▶ reflection, comparison ─▶ batch 1 ─▶ … ─▶ complete ─▶ artifacts
//
// Package rollout has the formats.
func rolloutKind() Kind {
	return Kind{Name: config.KindRollout, Executor: config.ExecutorInfer, ConfigOf: rolloutConfig,
		Complete: completeRollout, OwnLines: true,
		Roles: rolloutRoles, Grow: appendStage, RoleOf: stageRole, CutOf: cutBatch,
		Artifacts: rolloutArtifacts, Progress: rolloutProgress, Facts: rolloutFacts()}
}

// rolloutFacts is Kind.Facts of a rollout: which member of which ticket an item is.
func rolloutFacts() *Facts {
	number := func(n int) *int64 { return new(int64(n)) }
	named := func(s string) (v Value) { // null without a name
		if s != "" {
			v.Text = &s
		}
		return v
	}
	return &Facts{
		Columns: []Column{{Name: "mission"}, {Name: "group_id"}, {Name: "ticket", Integer: true},
			{Name: "epoch", Integer: true}, {Name: "batch", Integer: true}, {Name: "step", Integer: true},
			{Name: "decode", Integer: true}, {Name: "sample", Integer: true}},
		ValuesOf: func(_ record.Manifest, line []byte) ([]Value, error) {
			m, err := rollout.ReadMember(line)
			if err != nil {
				return nil, err
			}
			return []Value{named(m.Mission), named(m.Group), {Integer: number(m.Ticket)}, {Integer: number(m.Epoch)},
				{Integer: number(m.Batch)}, {Integer: number(m.Step)}, {Integer: number(m.Decode)},
				{Integer: number(m.Sample)}}, nil
		},
	}
}

// rolloutConfig is Kind.ConfigOf of a rollout: its items are lines of the plain dialect,
// whatever its tickets look like, and a member's line carries its ticket under that name.
func rolloutConfig(c config.Run) config.Run {
	c.Input.Dialect = string(dialect.Plain)
	c.Grades = slices.Clone(c.Grades)
	for n := range c.Grades {
		if g := &c.Grades[n]; g.Expected != "" {
			g.Expected = "ticket." + g.Expected
		}
	}
	return c
}

// completeRollout is Kind.Complete of a rollout.
func completeRollout(ctx context.Context, m *record.Manifest, at Site) error {
	if len(m.Inputs) != 1 {
		return fault.New(fault.Invalid, "a rollout has one file of tickets, not %d", len(m.Inputs))
	}
	if err := rollout.CheckConfig(m.Config); err != nil {
		return err
	}
	return CompletePrompts(ctx, m, at)
}

// appendStage is Kind.Grow of a rollout.
func appendStage(ctx context.Context, g Growth, w io.Writer) error {
	outcomes := func(yield func(rollout.Outcome, error) bool) {
		for it, err := range g.Items {
			if !yield(rollout.Outcome{Line: it.Line, Class: it.Class, Row: it.Row, Again: it.Attempt > 1}, err) {
				return
			}
		}
	}
	return rollout.Growing{Blobs: g.Blobs, Manifest: g.Manifest, Source: g.Source, Outcomes: outcomes}.
		Append(ctx, g.Input, w)
}

// stageRole is Kind.RoleOf of a rollout.
func stageRole(ctx context.Context, a Appended) (string, error) {
	s, err := rollout.ReadStage(ctx, a.Blobs, a.Manifest.Run, a.Input)
	return s.Kind.Role(), err
}

// rolloutRoles is Kind.Roles of a rollout: one that reflects has a model for that, and
// compares answers that are not results of the run.
func rolloutRoles(c config.Run) []Role {
	r := c.Reflection
	if r == nil {
		return nil
	}
	return []Role{
		{Name: rollout.RoleReflect, Key: "reflection.model", Model: config.Model{URI: cmp.Or(r.Model, c.Model.URI)},
			Sampling: r.ReflectionSampling(), Request: r.Request},
		{Name: rollout.RoleCompare, Model: c.Model, Sampling: c.Sampling, Request: c.Request, Graded: true},
	}
}

// cutBatch is Kind.CutOf of a rollout.
func cutBatch(ctx context.Context, a Appended) ([]int, error) {
	s, err := rollout.ReadStage(ctx, a.Blobs, a.Manifest.Run, a.Input)
	if err != nil {
		return nil, err
	}
	return s.Shards(a.Manifest.Config), nil
}

// rolloutArtifacts is Kind.Artifacts of a rollout.
func rolloutArtifacts(ctx context.Context, e Ended, sum *record.Summary) error {
	out, err := rollout.Ended{Blobs: e.Blobs, Manifest: e.Manifest, Attempts: e.Attempts,
		Outcomes: rollout.Outcomes(ctx, e.Blobs, e.Manifest, sum.Items)}.Publish(ctx)
	sum.Rollout = &out
	return err
}

// rolloutProgress is Kind.Progress of a rollout.
func rolloutProgress(ctx context.Context, a Appended) (*record.Rollout, error) {
	s, err := rollout.ReadStage(ctx, a.Blobs, a.Manifest.Run, a.Input)
	if fault.Is(err, fault.NotFound) { // nothing is planned yet, or its objects were deleted
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	out := s.Progress(a.Manifest.Config)
	return &out, nil
}
