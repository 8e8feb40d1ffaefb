package api

import (
	"context"

	"rollout/events"
	"rollout/functions/submit"
	"rollout/shared/core/identity"
	"rollout/shared/host"
	"rollout/shared/kind"
	"rollout/shared/record"
)

// Retry names the child run that asks items of an ended run again.
type Retry struct {
	Run       identity.RunID   `json:"run_id"`
	Parent    identity.RunID   `json:"parent"`
	Selection record.Selection `json:"selection"`
}

// Retry requests a child of an ended run, which asks the selected items again and
// keeps the rows of all others. A run that has not ended, or has no such item, is
// Conflict; one whose files are gone is NotFound; a wrong selection is Invalid.
func (s *Service) Retry(ctx context.Context, id identity.RunID, sel record.Selection) (Retry, error) {
	m, err := host.LoadManifest(ctx, s.ports.Docs, id)
	if err != nil {
		return Retry{}, err
	}
	if err := submit.CheckRetry(ctx, s.ports, kind.Table{}, m, sel); err != nil {
		return Retry{}, err
	}
	child := identity.ChildRun(id, sel.String(), s.ports.Clock.Now().UnixMilli())
	e := events.RetryRequested{Run: string(child), Parent: string(id), Only: sel.Only, Items: sel.Items.Gaps()}
	return Retry{Run: child, Parent: id, Selection: sel}, s.ports.Send(ctx, host.TaskQueue, e)
}
