package api

import (
	"context"
	"strings"

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
	Set       []string         `json:"set,omitempty"`
}

// Retry requests a child of an ended run, which asks the selected items again and
// keeps the rows of all others. set are settings for the items that are asked: see
// config.Run.Set. A run that has not ended, or has no such item, is Conflict; one whose
// files are gone is NotFound; a wrong selection or setting is Invalid.
func (s *Service) Retry(ctx context.Context, id identity.RunID, sel record.Selection, set []string) (Retry, error) {
	m, err := host.LoadManifest(ctx, s.ports.Docs, id)
	if err != nil {
		return Retry{}, err
	}
	as := record.Parent{Run: id, Selection: sel, Set: set}
	if err := submit.CheckRetry(ctx, s.ports, kind.Table{}, m, as); err != nil {
		return Retry{}, err
	}
	what := strings.Join(append([]string{sel.String()}, set...), "\n")
	child := identity.ChildRun(id, what, s.ports.Clock.Now().UnixMilli())
	e := events.RetryRequested{Run: string(child), Parent: string(id), Only: sel.Only, Items: sel.Items.Gaps(),
		FinishReasons: sel.Finish, Set: set}
	return Retry{Run: child, Parent: id, Selection: sel, Set: set}, s.ports.Send(ctx, host.TaskQueue, e)
}
