package api

import (
	"context"
	"fmt"
	"strings"

	"rollout/events"
	"rollout/functions/submit"
	"rollout/shared/config"
	"rollout/shared/core/identity"
	"rollout/shared/core/interval"
	"rollout/shared/fault"
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

// maxTrials bounds the trials that a request to retry a run names.
const maxTrials = 1000

// SelectTrials returns the items of a run that are the trials with these ids. An id that is not
// that of a trial of the run is Invalid.
func (s *Service) SelectTrials(ctx context.Context, id identity.RunID, ids []string) (items interval.Set, err error) {
	if len(ids) == 0 {
		return items, nil
	}
	m, err := host.LoadManifest(ctx, s.ports.Docs, id)
	if err != nil {
		return items, err
	}
	if m.Kind != config.KindTrials {
		return items, &fault.Error{Kind: fault.Invalid, Err: fmt.Errorf("run %s has no trials: it is a %s", id, m.Kind),
			Remedy: "select its items by class"}
	}
	if len(ids) > maxTrials {
		return items, &fault.Error{Kind: fault.Invalid, Err: fmt.Errorf("%d trials are named", len(ids)),
			Remedy: fmt.Sprintf("name at most %d in one run, or select them by class or unscored", maxTrials)}
	}
	for _, trial := range ids {
		item, err := s.explainer.ItemOf(ctx, id, trial)
		if fault.Is(err, fault.NotFound) {
			return items, &fault.Error{Kind: fault.Invalid, Err: fmt.Errorf("run %s has no trial %.64q", id, trial),
				Remedy: "name one as trials.jsonl has it, such as t0.plain.r0: task, variant, replication"}
		}
		if err != nil {
			return items, err
		}
		items.Add(int(item))
	}
	return items, nil
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
