package notify

import (
	"cmp"
	"context"
	"strings"

	"rollout/events"
	"rollout/shared/config"
	"rollout/shared/core/identity"
	"rollout/shared/core/notification"
	"rollout/shared/core/run"
	"rollout/shared/fault"
	"rollout/shared/host"
	"rollout/shared/input"
	"rollout/shared/observe"
	"rollout/shared/record"
	"rollout/shared/text"
)

// maxText bounds the texts of an event, in bytes.
const maxText = 512

func clip(s string) string {
	return text.Truncate(strings.ToValidUTF8(s, "?"), maxText-len("…"), "…")
}

// describedRun is what of a run's manifest is told.
type describedRun struct {
	name   string
	limits config.Limits
}

func describe(m record.Manifest) describedRun {
	return describedRun{m.Name, m.Config.Limits}
}

// view returns what of a run's state can be told.
func (d describedRun) view(s run.State) notification.RunView {
	v := notification.RunView{Phase: s.Phase, PausedAt: s.StopRequestedAt}
	spent := s.Spent()
	for _, b := range record.Budgets(d.limits, spent.Tokens, spent.USD()) {
		v.Budgets = append(v.Budgets, notification.Budget(b))
	}
	return v
}

// Open records what there is to tell about open runs: pauses, and budgets that are nearly
// spent. open must be all open runs: the notifier forgets what it knows of others.
func (n *Notifier) Open(ctx context.Context, open []run.State) error {
	if n == nil {
		return nil
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	candidates, err := n.candidates(ctx, open)
	if err != nil {
		return err
	}
	for _, s := range candidates {
		known := n.known[s.Run]
		v := known.run.view(s)
		if _, changes := known.told.Next(v); len(changes) == 0 {
			continue
		}
		d, err := n.record(ctx, record.RunSubject(s.Run), func(d *record.Notifications) (added []told, changed bool) {
			next, changes := d.Run.Next(v)
			d.Run = next
			for _, c := range changes {
				added = append(added, n.openEvent(s, known.run, c))
			}
			return added, len(changes) > 0
		})
		if err != nil {
			return fault.Wrap(err, "record what is told about run %s", s.Run)
		}
		known.told = d.Run
		n.known[s.Run] = known
	}
	return nil
}

// candidates returns the runs that may have something to tell, makes them known, and forgets
// those that are not open any more. The caller holds the lock.
func (n *Notifier) candidates(ctx context.Context, open []run.State) (out []run.State, err error) {
	isOpen := make(map[identity.RunID]bool, len(open))
	var unknown []identity.RunID
	for _, s := range open {
		isOpen[s.Run] = true
		if s.Phase != run.Paused && s.Phase != run.Interrupted && s.Allowances == nil {
			continue
		}
		out = append(out, s)
		if _, ok := n.known[s.Run]; !ok {
			unknown = append(unknown, s.Run)
		}
	}
	for id := range n.known {
		if !isOpen[id] {
			delete(n.known, id)
		}
	}
	manifests, err := host.LoadManifests(ctx, n.Docs, unknown)
	if err != nil {
		return nil, err
	}
	for i, m := range manifests {
		n.known[unknown[i]] = knownRun{run: describe(m)}
	}
	return out, nil
}

// openEvent returns the event of a change of an open run.
func (n *Notifier) openEvent(s run.State, d describedRun, c notification.Change) told {
	t := told{at: n.Clock.Now()}
	if c.Kind == notification.BudgetLow {
		t.payload = events.BudgetLow{Run: string(s.Run), Name: clip(d.name), Budget: c.Budget.Name,
			Used: c.Budget.Used, Limit: c.Budget.Limit}
		return t
	}
	t.at = s.StopRequestedAt
	t.payload = events.RunPaused{Run: string(s.Run), Name: clip(d.name), Phase: string(s.Phase), Reason: clip(s.Message)}
	return t
}

// Ended records the ends of runs. It reads their summaries, unless the end was recorded
// before and nothing is pending. It logs what can't be read for good, and goes on: trying again would not help.
func (n *Notifier) Ended(ctx context.Context, ms []record.Manifest) error {
	if n == nil {
		return nil
	}
	for _, m := range ms {
		err := n.ended(ctx, m)
		switch {
		case err == nil:
		case ctx.Err() != nil || fault.Retriable(err):
			return err
		default:
			n.Log.WarnContext(ctx, "the end of a run is not told", observe.KeyRun, m.Run, observe.KeyError, err)
		}
	}
	return nil
}

func (n *Notifier) ended(ctx context.Context, m record.Manifest) error {
	var d record.Notifications
	if _, _, err := host.Load(ctx, n.Docs, record.NotifyKey(record.RunSubject(m.Run)), &d); err != nil {
		return err
	}
	if d.Run.Ended && len(d.Pending) == 0 {
		return nil
	}
	sum, err := n.summary(ctx, m)
	if err != nil {
		return err
	}
	return n.recordEnd(ctx, m, sum)
}

// summary returns a run's summary: that of its output files or, where it has none because it
// was refused or they are gone, what its documents say.
func (n *Notifier) summary(ctx context.Context, m record.Manifest) (sum record.Summary, err error) {
	if m.Refused != "" {
		return record.Summary{Run: m.Run, Phase: string(run.Failed), Message: m.Refused, EndedAt: m.CreatedAt}, nil
	}
	key := record.OutputKey(m.Run, record.SummaryFile)
	if err = input.ReadJSON(ctx, n.Blobs, key, &sum); !fault.Is(err, fault.NotFound) {
		return sum, err
	}
	s := run.New(m.Run)
	if _, _, err := host.Load(ctx, n.Docs, record.CoordinatorKey(m.Run), &s); err != nil {
		return sum, err
	}
	return record.Summary{Run: m.Run, Phase: string(s.Phase), Message: s.Message, Items: s.Items,
		Completed: uint64(max(0, s.Counts.OK)), Failed: uint64(max(0, s.Counts.Failed)), FailedByClass: s.Counts.ByClass,
		PromptTokens: s.Counts.PromptTokens, CompletionTokens: s.Counts.CompletionTokens, EndedAt: s.EndedAt}, nil
}

// Finalized records the end of a run whose summary was just written. An error is logged, and
// reclaim records the end later: the caller can do nothing about it.
func (n *Notifier) Finalized(ctx context.Context, m record.Manifest, sum record.Summary) {
	if n == nil {
		return
	}
	if err := n.recordEnd(ctx, m, sum); err != nil {
		n.Log.WarnContext(ctx, "the end of a run is told later", observe.KeyRun, m.Run, observe.KeyError, err)
	}
}

// recordEnd records the end of a run, once.
func (n *Notifier) recordEnd(ctx context.Context, m record.Manifest, sum record.Summary) error {
	v := notification.RunView{Phase: run.Phase(sum.Phase)}
	_, err := n.record(ctx, record.RunSubject(m.Run), func(d *record.Notifications) (added []told, changed bool) {
		next, changes := d.Run.Next(v)
		d.Run = next
		for _, c := range changes {
			added = append(added, told{endPayload(c.Kind, m, sum), sum.EndedAt})
		}
		return added, len(changes) > 0
	})
	return fault.Wrap(err, "record the end of run %s", m.Run)
}

// endPayload returns the payload of a run's end.
func endPayload(kind notification.Kind, m record.Manifest, sum record.Summary) events.Payload {
	o := events.RunOutcome{
		Run: string(m.Run), Name: clip(m.Name), Phase: sum.Phase, Message: clip(sum.Message), Items: sum.Items,
		Completed: sum.Completed, Failed: sum.Failed, FailedByClass: sum.FailedByClass, PromptTokens: sum.PromptTokens,
		CompletionTokens: sum.CompletionTokens, CostUSD: sum.CostUSD, Seconds: sum.Seconds,
	}
	if m.Refused == "" {
		o.Summary = record.OutputKey(m.Run, record.SummaryFile)
	}
	o.Phase = cmp.Or(o.Phase, string(run.Failed))
	switch kind {
	case notification.RunCompleted:
		return events.RunCompleted{RunOutcome: o}
	case notification.RunStopped:
		return events.RunStopped{RunOutcome: o}
	}
	return events.RunFailed{RunOutcome: o}
}
