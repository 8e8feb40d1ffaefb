package status

import (
	"context"

	"rollout/shared/fault"
	"rollout/shared/input"
	"rollout/shared/kind"
	"rollout/shared/record"
)

// rollout returns the progress of an open rollout, by its last batch.
func (r *Reader) rollout(ctx context.Context, p Progress) (*record.Rollout, error) {
	if p.Kind.Progress == nil || p.State.Phase.Ended() || p.Plan.Appended == nil {
		return nil, nil
	}
	out, err := p.Kind.Progress(ctx,
		kind.Appended{Blobs: r.ports.Blobs, Manifest: p.Manifest, Input: p.Plan.Appended.Input})
	return out, readable(err)
}

// endedRollout returns what an ended rollout came to, by its summary.
func (r *Reader) endedRollout(ctx context.Context, p Progress) (*record.Rollout, error) {
	if p.Kind.Progress == nil {
		return nil, nil
	}
	var sum record.Summary
	err := input.ReadJSON(ctx, r.ports.Blobs, record.OutputKey(p.Manifest.Run, record.SummaryFile), &sum)
	return sum.Rollout, readable(err)
}

// readable drops the error of a file that is deleted or damaged: what documents say of
// this run, and the status of others, do not depend on it.
func readable(err error) error {
	if fault.Is(err, fault.NotFound) || fault.Is(err, fault.Corrupt) {
		return nil
	}
	return err
}

// setRollout sets the progress of a rollout, whose batches are planned one after the
// other: how many items it has is known from the first one on.
func (s *Status) setRollout(p Progress) {
	s.Rollout = p.Rollout
	if p.Rollout != nil && p.Rollout.AllItems > 0 {
		s.Items.Total, s.Items.Planned = uint64(p.Rollout.AllItems), true
	}
}
