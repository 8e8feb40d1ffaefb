package finalize

import (
	"context"

	"rollout/shared/core/shard"
	"rollout/shared/fault"
	"rollout/shared/input"
	"rollout/shared/record"
)

// retried says what the rows of a child with those counts come from; nil for a run of its
// own. Counts of a parent whose summary is gone are 0.
func (f *Finalizer) retried(ctx context.Context, m record.Manifest, c shard.Counts) (*record.Retry, error) {
	if m.Parent == nil {
		return nil, nil
	}
	var parent record.Summary
	key := record.OutputKey(m.Parent.Run, record.SummaryFile)
	if err := input.ReadJSON(ctx, f.Blobs, key, &parent); err != nil && !fault.Is(err, fault.NotFound) {
		return nil, err
	}
	out := &record.Retry{Parent: *m.Parent.Masked(), ParentCompleted: parent.Completed, ParentFailed: parent.Failed,
		Kept: uint64(c.Kept), KeptFailed: uint64(c.KeptFailed), Answered: uint64(c.OK - c.Kept),
		StillFailed: uint64(c.Failed - c.KeptFailed)}
	out.Asked = out.Answered + out.StillFailed
	out.StillFailedByClass = stillFailed(m.Parent.Selection, c.ByClass, parent.FailedByClass)
	return out, nil
}

// stillFailed counts the failures of a child, by class, without the error rows that it
// keeps from its parent: those of the classes that it does not select.
func stillFailed(sel record.Selection, failed, parent map[string]int) map[string]int {
	if sel.Items.Len() > 0 {
		return nil
	}
	out := map[string]int{}
	for class, n := range failed {
		if !sel.Selects(0, fault.Class(class)) {
			n -= parent[class]
		}
		if n > 0 {
			out[class] = n
		}
	}
	return out
}
