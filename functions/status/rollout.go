package status

import (
	"context"

	"rollout/shared/fault"
	"rollout/shared/input"
	"rollout/shared/kind"
	"rollout/shared/record"
)

// rollout returns the progress of a rollout: by its last batch or, after its end, by its
// summary.
func (r *Reader) rollout(ctx context.Context, p Progress) (*record.Rollout, error) {
	if p.Kind.Progress == nil {
		return nil, nil
	}
	if !p.State.Phase.Ended() {
		if p.Plan.Appended == nil {
			return nil, nil
		}
		return p.Kind.Progress(ctx, kind.Appended{Blobs: r.ports.Blobs, Manifest: p.Manifest, Input: p.Plan.Appended.Input})
	}
	var sum record.Summary
	err := input.ReadJSON(ctx, r.ports.Blobs, record.OutputKey(p.Manifest.Run, record.SummaryFile), &sum)
	if fault.Is(err, fault.NotFound) { // users may delete it
		err = nil
	}
	return sum.Rollout, err
}

// setRollout sets the progress of a rollout, whose batches are planned one after the
// other: how many items it has is known from the first one on.
func (s *Status) setRollout(p Progress) {
	s.Rollout = p.Rollout
	if p.Rollout != nil && p.Rollout.AllItems > 0 {
		s.Items.Total, s.Items.Planned = uint64(p.Rollout.AllItems), true
	}
}
