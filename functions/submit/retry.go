package submit

import (
	"context"
	"errors"
	"fmt"
	"time"

	"rollout/events"
	"rollout/shared/config"
	"rollout/shared/core/identity"
	"rollout/shared/core/interval"
	"rollout/shared/core/run"
	"rollout/shared/fault"
	"rollout/shared/host"
	"rollout/shared/kind"
	"rollout/shared/record"
)

// Retry creates a child of an ended run, which asks some of its items again. If the
// child exists it stays as it is, and Retry only asks for its plan. A parent that
// cannot have a child makes a refused run.
func (s *Submitter) Retry(ctx context.Context, e events.RetryRequested) (err error) {
	id := identity.RunID(e.Run)
	ctx, span := s.StartSpan(ctx, time.Time{}, "retry", id)
	defer func() { span.End(err) }()
	switch first, err := host.LoadManifest(ctx, s.Docs, id); {
	case err == nil:
		return s.announce(ctx, first)
	case !fault.Is(err, fault.NotFound):
		return err
	}
	parent, err := host.LoadManifest(ctx, s.Docs, identity.RunID(e.Parent))
	if err != nil {
		return err
	}
	items, err := interval.FromGaps(e.Items)
	if err != nil {
		return fault.WithKind(fault.Invalid, err, "read the selected items")
	}
	m := parent
	m.Run, m.CreatedAt = id, s.Clock.Now().UTC()
	m.Parent = &record.Parent{Run: parent.Run, Selection: record.Selection{Only: e.Only, Items: interval.Of(items...)}}
	err = CheckRetry(ctx, s.Ports, s.opts.Kinds, parent, m.Parent.Selection)
	if err == nil {
		err = s.checkGraders(parent.Config.Grades)
	}
	if err == nil {
		m.Pool, err = kind.PoolOf(s.opts.Deployment, parent)
	}
	switch fault.KindOf(err) {
	case fault.Invalid, fault.Conflict, fault.NotFound:
		m.Refused = err.Error()
	default:
		if err != nil {
			return err
		}
	}
	return s.create(ctx, m)
}

// CheckRetry reports why a run cannot have a child that asks the selected items again;
// nil if it can. Invalid and Conflict are about the run and the selection, and
// NotFound about files of the run that are gone.
func CheckRetry(ctx context.Context, p host.Ports, kinds kind.Table, parent record.Manifest,
	sel record.Selection) error {
	if err := sel.Check(); err != nil {
		return err
	}
	if parent.Refused != "" {
		return &fault.Error{Kind: fault.Conflict, Err: fmt.Errorf("run %s was refused: %s", parent.Run, parent.Refused),
			Remedy: "submit its input again"}
	}
	k, err := kinds.Of(parent.Kind) // a refused run may have none
	if err != nil {
		return err
	}
	if len(parent.Config.Judges()) > 0 {
		return &fault.Error{Kind: fault.Invalid, Err: fmt.Errorf("run %s has a judge, and the plan of its retry can't grow "+
			"by what the judge would read", parent.Run), Remedy: "submit the lines of the failed items as a run of their own"}
	}
	if parent.Kind == config.KindRollout {
		return &fault.Error{Kind: fault.Invalid, Err: fmt.Errorf("run %s is a rollout, and the batches after a failed item "+
			"followed from it", parent.Run), Remedy: "submit the tickets that failures.jsonl names as a run of their own"}
	}
	if !k.Retries || len(parent.Roles) > 0 {
		return fault.New(fault.Invalid, "items of a run of kind %q can't be asked again", parent.Kind)
	}
	if sel.Items.Len() > 0 && parent.Config.Dedupe.Enabled {
		return &fault.Error{Kind: fault.Invalid, Remedy: "select items by their classes",
			Err: errors.New("the run asks identical requests once, so that its items can't be selected one by one")}
	}
	s := run.New(parent.Run)
	if _, _, err := host.Load(ctx, p.Docs, record.CoordinatorKey(parent.Run), &s); err != nil {
		return err
	}
	if !s.Phase.Ended() {
		return &fault.Error{Kind: fault.Conflict, Err: fmt.Errorf("run %s has not ended", parent.Run),
			Remedy: "wait for its end, or stop it"}
	}
	if !selectsAny(s, sel) {
		return &fault.Error{Kind: fault.Conflict, Remedy: "choose others: `rollout status` counts the failed items by class",
			Err: fmt.Errorf("run %s has no item to ask again: selected is %s", parent.Run, sel)}
	}
	return checkFiles(ctx, p, parent.Run)
}

// selectsAny reports whether the selection may match an item of the ended run.
func selectsAny(s run.State, sel record.Selection) bool {
	if sel.SelectsAll() && s.Items > 0 {
		return true
	}
	for class, n := range s.Counts.ByClass {
		if n > 0 && (record.Selection{Only: sel.Only}).Selects(0, fault.Class(class)) {
			return true
		}
	}
	ranges := sel.Items.Ranges()
	return len(ranges) > 0 && uint64(ranges[0].Lo) < s.Items
}

// checkFiles returns NotFound if objects that a child needs are gone.
func checkFiles(ctx context.Context, p host.Ports, parent identity.RunID) error {
	var plan record.Plan
	if _, _, err := host.Load(ctx, p.Docs, record.PlanKey(parent), &plan); err != nil {
		return err
	}
	owner := parent
	if plan.Inherited != nil {
		owner = plan.Inherited.Plan
	}
	keys := []string{record.FileEntriesKey(parent), record.OutputKey(parent, record.CompletionsFile),
		record.OutputKey(parent, record.ErrorsFile)}
	if plan.Total > 0 {
		keys = append(keys, record.IndexKey(owner, 0), record.ShardTableKey(owner, 0))
	}
	for _, key := range keys {
		_, err := p.Blobs.Stat(ctx, key, "")
		if fault.Is(err, fault.NotFound) {
			return &fault.Error{Kind: fault.NotFound,
				Err:    fmt.Errorf("%s, which the retry of run %s reads, is gone", key, parent),
				Remedy: "submit the input again: `rollout clean`, the bucket's lifecycle or an older version left it out"}
		}
		if err != nil {
			return err
		}
	}
	if !plan.Complete() || plan.Problem != "" {
		return &fault.Error{Kind: fault.Conflict, Err: fmt.Errorf("run %s ended before its input was planned", parent),
			Remedy: "submit its input again"}
	}
	return nil
}
