package diagnosis

import (
	"context"

	"rollout/functions/status"
	"rollout/shared/dialect"
	"rollout/shared/fault"
	"rollout/shared/record"
)

// firstLost says of an ended run with damaged or lost results which object the first is;
// "" for any other run.
func (x *Explainer) firstLost(ctx context.Context, p status.Progress, s status.Status) (string, error) {
	if !s.Phase.Ended() || s.FailedByClass[string(fault.Storage)] == 0 {
		return "", nil
	}
	said := ""
	_, _, err := x.findRow(ctx, record.OutputKey(p.Manifest.Run, record.ErrorsFile), func(row []byte) bool {
		f, ok := dialect.ReadFailure(dialect.Name(p.Manifest.Dialect), row)
		said = f.Message
		return ok && f.Class == fault.Storage
	})
	return said, err
}
