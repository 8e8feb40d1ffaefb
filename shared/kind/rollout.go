package kind

import (
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
//	tickets ─▶ batch 0 ─▶ answers ─▶ batch 1 ─▶ … ─▶ complete ─▶ artifacts
//
// Package rollout has the formats.
func rolloutKind() Kind {
	return Kind{Name: config.KindRollout, Executor: config.ExecutorInfer, ConfigOf: rolloutConfig,
		Complete: completeRollout, OwnLines: true, Grow: nextBatch, CutOf: cutBatch,
		Artifacts: rolloutArtifacts, Progress: rolloutProgress}
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
	return CompletePrompts(ctx, m, at)
}

// nextBatch is Kind.Grow of a rollout.
func nextBatch(ctx context.Context, g Growth, w io.Writer) error {
	m := g.Manifest
	if g.Input == len(m.Inputs) {
		book, err := rollout.Import(ctx, g.Blobs, m, g.Source)
		if err != nil || book.Tickets == 0 {
			return err
		}
		return rollout.Start(m, g.Input, book).Write(ctx, g.Blobs, m, w)
	}
	last, err := rollout.ReadStage(ctx, g.Blobs, m.Run, g.Input-1)
	if err != nil {
		return err
	}
	reader, err := rollout.NewReader(m.Config)
	if err != nil {
		return err
	}
	totals := last.Totals.Clone()
	var members []rollout.Outcome
	for it, err := range g.Items {
		if err != nil {
			return err
		}
		members = append(members, rollout.Outcome{Line: it.Line, Class: it.Class, Row: it.Row})
		if len(members) < last.Members {
			continue
		}
		group, err := reader.Read(members)
		if err != nil {
			return err
		}
		totals.Add(group)
		members = members[:0]
	}
	next, more := last.Next(m.Config, totals)
	if !more {
		return nil
	}
	return next.Write(ctx, g.Blobs, m, w)
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
