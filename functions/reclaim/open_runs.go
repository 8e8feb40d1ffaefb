package reclaim

import (
	"context"
	"errors"
	"slices"
	"time"

	"rollout/events"
	"rollout/shared/core/identity"
	"rollout/shared/core/run"
	"rollout/shared/document"
	"rollout/shared/fault"
	"rollout/shared/host"
	"rollout/shared/record"
)

// open returns the states of the open runs. Of those that coordinate has not
// heard of it asks for the plan; those that have ended are open no more. A
// document that can't be read hides no other: it is told in the error.
func (r *Reclaimer) open(ctx context.Context, now time.Time) (states []run.State, failed error) {
	var notes []document.Doc
	for d, err := range document.All(ctx, r.Docs, record.OpenRunPrefix) {
		if err != nil {
			return nil, fault.Wrap(err, "list the open runs")
		}
		notes = append(notes, d)
	}
	for page := range slices.Chunk(notes, document.MaxKeys) {
		found, err := r.openOf(ctx, page, now)
		states, failed = append(states, found...), errors.Join(failed, err)
	}
	for id := range r.checkedAt {
		if !slices.ContainsFunc(states, func(s run.State) bool { return s.Run == id }) {
			delete(r.checkedAt, id)
		}
	}
	return states, failed
}

func (r *Reclaimer) openOf(ctx context.Context, notes []document.Doc, now time.Time) (states []run.State, failed error) {
	coordinators, err := r.Docs.GetMany(ctx, keys(notes, record.CoordinatorKey))
	if err != nil {
		return nil, fault.Wrap(err, "look at the open runs")
	}
	var unheard []document.Doc
	for i, d := range coordinators {
		var s run.State
		switch err := decode(d, &s); {
		case d.Revision == "":
			unheard = append(unheard, notes[i])
		case err != nil:
			failed = errors.Join(failed, err)
		case s.Phase.Ended():
			failed = errors.Join(failed, r.forgetOpen(ctx, notes[i]))
		default:
			states = append(states, s)
		}
	}
	return states, errors.Join(failed, r.replanUnseen(ctx, unheard, now))
}

// maxRetryInterval is how long a plan may be under way at most: a function's longest time.
const maxRetryInterval = 15 * time.Minute

// replanUnseen asks for the plan of runs that coordinate never heard of, whose
// events were lost, once they are outstanding; and again after as long as that
// took, as a large archive is unpacked before coordinate hears of its run. What
// is noted without a manifest for long is a submission that came to nothing.
func (r *Reclaimer) replanUnseen(ctx context.Context, notes []document.Doc, now time.Time) (failed error) {
	if len(notes) == 0 {
		return nil
	}
	manifests, err := r.Docs.GetMany(ctx, keys(notes, record.ManifestKey))
	if err != nil {
		return fault.Wrap(err, "look at the open runs")
	}
	for i, d := range manifests {
		var note record.OpenRun
		m, err := host.DecodeManifest(d)
		err = errors.Join(err, decode(notes[i], &note))
		pace := min(max(retryAfter, note.PlanRequestedAt.Sub(note.At)), maxRetryInterval)
		switch gone := d.Revision == ""; {
		case err != nil:
		case m.Refused != "", gone && apart(note.At, now) > retainFor:
			err = r.forgetOpen(ctx, notes[i])
		case !gone && apart(note.At, now) > retryAfter && apart(note.PlanRequestedAt, now) > pace:
			err = r.ask(ctx, notes[i], note, now)
		}
		failed = errors.Join(failed, err)
	}
	return failed
}

// ask asks for a run's plan, and notes that. Whoever notes it first asks.
func (r *Reclaimer) ask(ctx context.Context, d document.Doc, note record.OpenRun, now time.Time) error {
	note.PlanRequestedAt = now.UTC()
	_, err := host.Save(ctx, r.Docs, d.Key, note, d.Revision)
	switch {
	case fault.Is(err, fault.Conflict):
		return nil
	case err != nil:
		return err
	}
	return r.Send(ctx, host.TaskQueue, events.RunSubmitted{Run: string(note.Run)})
}

// forgetOpen forgets that a run is open, unless somebody noted it anew.
func (r *Reclaimer) forgetOpen(ctx context.Context, note document.Doc) error {
	err := r.Docs.Delete(ctx, note.Key, note.Revision)
	if fault.Is(err, fault.NotFound) || fault.Is(err, fault.Conflict) {
		return nil
	}
	return fault.Wrap(err, "forget that a run is open")
}

// WakeAll asks coordinate to look at every run that has not ended, and notes
// those as open that are not: an earlier version noted none. It is called once,
// when a process starts.
func (r *Reclaimer) WakeAll(ctx context.Context) error {
	return host.Each(ctx, r.Docs, record.ManifestPrefix, func(m record.Manifest) error {
		var s run.State
		_, found, err := host.Load(ctx, r.Docs, record.CoordinatorKey(m.Run), &s)
		if err != nil || s.Phase.Ended() || m.Refused != "" {
			return err
		}
		note := record.OpenRun{Schema: record.Schema, Run: m.Run, At: r.Clock.Now().UTC()}
		if _, err := host.Save(ctx, r.Docs, record.OpenRunKey(m.Run), note, ""); err != nil && !fault.Is(err, fault.Conflict) {
			return err
		}
		if !s.Complete {
			if err := r.Send(ctx, host.TaskQueue, events.RunSubmitted{Run: string(m.Run)}); err != nil {
				return err
			}
		}
		if !found {
			return nil
		}
		return r.wake(ctx, m.Run, "start")
	})
}

// keys are those of other documents of the runs that the notes are about.
func keys(notes []document.Doc, of func(identity.RunID) string) []string {
	out := make([]string, len(notes))
	for i, d := range notes {
		id, _ := record.RunFromKey(d.Key)
		out[i] = of(id)
	}
	return out
}

// decode reads a document; one that is not there is the zero value.
func decode(d document.Doc, v any) error {
	if d.Revision == "" {
		return nil
	}
	return record.Decode(d.Value, v, "document "+d.Key)
}

// apart is how far a time is from now: in the future, if the clock was set back
// since.
func apart(at, now time.Time) time.Duration { return now.Sub(at).Abs() }
