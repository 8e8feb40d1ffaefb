package submit

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"rollout/events"
	"rollout/shared/config"
	"rollout/shared/core/identity"
	"rollout/shared/core/interval"
	"rollout/shared/core/run"
	"rollout/shared/core/shard"
	"rollout/shared/dialect"
	"rollout/shared/fault"
	"rollout/shared/host"
	"rollout/shared/kind"
	"rollout/shared/prices"
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
	case host.IsExpired(err):
		return s.passOver(ctx, err)
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
	m.Parent = &record.Parent{Run: parent.Run, Set: e.Set,
		Selection: record.Selection{Only: e.Only, Finish: e.FinishReasons, Items: interval.Of(items...)}}
	if e.Amend != nil {
		created := m.CreatedAt
		m, err = AmendRun(ctx, s.Ports, s.opts.Kinds, parent, id, *e.Amend, e.Set)
		m.CreatedAt = created
	} else if err = CheckRetry(ctx, s.Ports, s.opts.Kinds, parent, *m.Parent); err == nil {
		m.Config, m.Original, err = withSettings(parent, e.Set, settableInRetry, "a retry")
	}
	if err == nil && len(e.Set) > 0 {
		m.PromptMaxTokens = PromptMaxTokens(m.Config, dialect.Name(m.Dialect))
	}
	if err == nil {
		err = CheckGraders(s.opts.Deployment, parent.Config.Grades)
	}
	if err == nil {
		m.Pool, err = kind.PoolOf(s.opts.Deployment, parent)
	}
	if err == nil {
		m.Roles, err = s.rolesOfChild(parent, m.Config)
	}
	if err == nil {
		err = s.freezeAgents(ctx, &m)
	}
	if err == nil {
		err = prices.CheckBudget(s.opts.Deployment, m.Config.Limits, m.Pools())
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

// rolesOfChild returns the roles of a child of the run that has that config.
func (s *Submitter) rolesOfChild(parent record.Manifest, c config.Run) ([]record.Role, error) {
	k, err := s.opts.Kinds.Of(parent.Kind)
	if err != nil {
		return nil, err
	}
	return k.RolesOfChild(parent, c, s.opts.Deployment)
}

// checkParent returns NotFound if the parent of a child has expired or is about to. It is called
// when the child is noted under its parent: a parent that expires later finds the note.
func (s *Submitter) checkParent(ctx context.Context, parent identity.RunID) error {
	var x record.RunIndex
	if _, _, err := host.Load(ctx, s.Docs, record.RunIndexKey, &x); err != nil {
		return err
	}
	if slices.ContainsFunc(x.Expiring, func(of record.Expiring) bool { return of.Run() == parent }) {
		return fault.New(fault.NotFound, "the documents of run %s, which the retry reads, are about to expire", parent)
	}
	_, err := host.LoadManifest(ctx, s.Docs, parent)
	return err
}

// CheckRetry reports why a run cannot have a child with that Parent; nil if it can.
// Invalid and Conflict are about the run, the selection and the settings, and NotFound
// about files of the run that are gone.
func CheckRetry(ctx context.Context, p host.Ports, kinds kind.Table, parent record.Manifest, as record.Parent) error {
	sel := as.Selection
	if err := sel.Check(); err != nil {
		return err
	}
	if parent.Refused != "" {
		return refusedBefore(parent)
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
	if !k.Retries || hasUnseenRoles(parent) {
		return fault.New(fault.Invalid, "items of a run of kind %q can't be asked again", parent.Kind)
	}
	if _, _, err := withSettings(parent, as.Set, settableInRetry, "a retry"); err != nil {
		return err
	}
	if sel.Items.Len() > 0 && parent.Config.Dedupe.Enabled {
		return &fault.Error{Kind: fault.Invalid, Remedy: "select items by their classes",
			Err: errors.New("the run asks identical requests once, so that its items can't be selected one by one")}
	}
	s, err := endedState(ctx, p, parent.Run)
	if err != nil {
		return err
	}
	if !selectsAny(s, sel, parent.Config.Grades) {
		return &fault.Error{Kind: fault.Conflict, Remedy: "choose others: `rollout status` counts the failed items by class",
			Err: fmt.Errorf("run %s has no item to ask again: selected is %s", parent.Run, sel)}
	}
	return checkFiles(ctx, p, parent.Run)
}

// hasUnseenRoles reports whether the run asks for items itself: children's plans don't grow.
func hasUnseenRoles(m record.Manifest) bool {
	return slices.ContainsFunc(m.Roles, func(r record.Role) bool { return !r.Output })
}

// notEnded says what to do with a run of the phase before it can be retried.
func notEnded(p run.Phase) string {
	if p == run.Paused || p == run.Interrupted {
		return "it is " + string(p) + ": resume it, or stop it"
	}
	return "wait for its end, or stop it"
}

// selectsAny reports whether the selection may match an item of the ended run.
func selectsAny(s run.State, sel record.Selection, grades []config.Grade) bool {
	if sel.SelectsAll() && s.Items > 0 || mayHaveEnded(s.Counts, sel.Finish) {
		return true
	}
	if slices.Contains(sel.Only, record.SelectUnscored) && len(grades) > 0 && s.Counts.OK > 0 {
		return true // their rows say which have no score
	}
	for class, n := range s.Counts.ByClass {
		if n > 0 && (record.Selection{Only: sel.Only}).Selects(0, fault.Class(class)) {
			return true
		}
	}
	ranges := sel.Items.Ranges()
	return len(ranges) > 0 && uint64(ranges[0].Lo) < s.Items
}

// mayHaveEnded reports whether an answer may have one of the finish reasons. Those of
// answers that the run kept from its own parent are not counted, and neither are reasons
// that were too long or too many.
func mayHaveEnded(c shard.Counts, reasons []string) bool {
	counted := 0
	for _, n := range c.Finish {
		counted += n
	}
	for _, r := range reasons {
		if c.Kept > 0 || c.Finish[r] > 0 || c.HasOtherFinish() || r == shard.FinishStop && c.OK > counted {
			return true
		}
	}
	return false
}

// settableInRetry are the tables whose keys a retry may set: the others decide what the
// items are, who answers them, or how all of them are scored.
var settableInRetry = []string{"sampling", "request", "limits"}

// withSettings returns the config of the parent's child with those settings, which are of these
// tables, and by which settings its item ids and seeds are computed: as in the run that first asked
// its items. child is what is said to set them.
func withSettings(parent record.Manifest, settings, tables []string, child string) (config.Run, *record.Original,
	error) {
	c, err := parent.Config.Set(settings)
	if err != nil {
		return c, nil, err
	}
	for _, key := range config.SettingKeys(settings) {
		if table, _, _ := strings.Cut(key, "."); !slices.Contains(tables, table) {
			return c, nil, &fault.Error{Kind: fault.Invalid, Err: fmt.Errorf("%s can't set %s", child, key),
				Remedy: "set keys of " + strings.Join(tables, ", ") + ", or submit the input as a run of its own"}
		}
	}
	original := parent.Original
	if original == nil && (!bytes.Equal(c.Sampling.Canonical(), parent.Config.Sampling.Canonical()) ||
		!bytes.Equal(c.Request.Canonical(), parent.Config.Request.Canonical())) {
		original = &record.Original{Sampling: parent.Config.Sampling, Request: parent.Config.Request}
	}
	return c, original, nil
}

// checkFiles returns NotFound if objects that a child needs are gone.
func checkFiles(ctx context.Context, p host.Ports, parent identity.RunID) error {
	var plan record.Plan
	if _, _, err := host.Load(ctx, p.Docs, record.PlanKey(parent), &plan); err != nil {
		return err
	}
	owner := plan.RangeOwner(parent, 0)
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
