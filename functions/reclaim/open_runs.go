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

// open returns the states of the open runs. It asks for the plans of runs that
// coordinate has no state of, frees the work files of ended runs (see Freer), and moves
// these to the index of ended ones. It skips documents that can't be read, and returns
// their errors together.
func (r *Reclaimer) open(ctx context.Context, now time.Time) (states []run.State, failed error) {
	r.states.begin()
	var notes []document.Doc
	for d, err := range document.All(ctx, r.Docs, record.OpenRunPrefix) {
		if err != nil {
			return nil, fault.Wrap(err, "list the open runs")
		}
		notes = append(notes, d)
	}
	most := freedAtOnce
	for page := range slices.Chunk(notes, document.MaxKeys) {
		found, err := r.openOf(ctx, page, now, &most)
		states, failed = append(states, found...), errors.Join(failed, err)
	}
	for id := range r.damaged {
		if !slices.ContainsFunc(notes, func(d document.Doc) bool { return d.Key == record.OpenRunKey(id) }) {
			delete(r.damaged, id)
		}
	}
	for id := range r.checkedAt {
		if !slices.ContainsFunc(states, func(s run.State) bool { return s.Run == id }) {
			delete(r.checkedAt, id)
		}
	}
	return states, failed
}

// openOf is open for one page of the index. It subtracts the objects that it looked at to free
// them from the most that it may.
func (r *Reclaimer) openOf(ctx context.Context, notes []document.Doc,
	now time.Time, most *int) (states []run.State, failed error) {
	coordinators, err := r.Docs.GetMany(ctx, keys(notes, record.CoordinatorKey))
	if err != nil {
		return nil, fault.Wrap(err, "read the open runs")
	}
	var unseen, ended []document.Doc
	for i, d := range coordinators {
		if id, _ := record.RunFromKey(notes[i].Key); r.damaged[id] {
			continue
		}
		if d.Revision == "" {
			unseen = append(unseen, notes[i])
			continue
		}
		switch s, err := r.states.of(d); {
		case err != nil:
			failed = errors.Join(failed, err)
		case s.Phase.Ended():
			ended = append(ended, notes[i])
		default:
			states = append(states, s)
		}
	}
	refused, err := r.replanUnseen(ctx, unseen, now)
	freed, freeErr := r.free(ctx, ended, most)
	return states, errors.Join(failed, err, freeErr, r.moveEnded(ctx, append(freed, refused...)))
}

// maxRetryInterval bounds the interval of retries: a function runs no longer.
const maxRetryInterval = 15 * time.Minute

// replanUnseen asks for the plan of runs that coordinate has no state of, because
// their events were lost, after retryAfter; and again after twice as long each
// time, because a large archive is unpacked before coordinate learns of its run.
// It returns the notes of runs that were refused, and removes those of runs whose submission
// failed before it wrote a manifest.
func (r *Reclaimer) replanUnseen(ctx context.Context, notes []document.Doc, now time.Time) (
	refused []document.Doc, failed error) {
	if len(notes) == 0 {
		return nil, nil
	}
	manifests, err := r.Docs.GetMany(ctx, keys(notes, record.ManifestKey))
	if err != nil {
		return nil, fault.Wrap(err, "read the manifests of the open runs")
	}
	for i, d := range manifests {
		var note record.OpenRun
		m, err := host.DecodeManifest(d)
		err = errors.Join(err, decode(notes[i], &note))
		pace := min(max(retryAfter, note.PlanRequestedAt.Sub(note.At)), maxRetryInterval)
		switch gone := d.Revision == ""; {
		case err != nil:
		case m.Refused != "":
			refused = append(refused, notes[i])
		case gone && apart(note.At, now) > retainFor:
			err = r.forgetOpen(ctx, notes[i])
		case !gone && apart(note.At, now) > retryAfter && apart(note.PlanRequestedAt, now) > pace:
			err = r.ask(ctx, notes[i], note, now)
		}
		failed = errors.Join(failed, err)
	}
	return refused, failed
}

// ask notes in the index that a run's plan is asked for, and asks. If another
// scan has changed the note meanwhile, that scan asks.
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

// forgetOpen removes a run from the index, unless its note was written again.
func (r *Reclaimer) forgetOpen(ctx context.Context, note document.Doc) error {
	err := r.Docs.Delete(ctx, note.Key, note.Revision)
	if fault.Is(err, fault.NotFound) || fault.Is(err, fault.Conflict) {
		return nil
	}
	return fault.Wrap(err, "remove a run from the open ones")
}

// WakeAll wakes coordinate for every run that has not ended, and asks for incomplete plans.
// While the index of runs is not complete, it looks at every manifest, and enters the runs into
// the index of open runs, which early versions did not write. Call it once, when a process
// starts.
func (r *Reclaimer) WakeAll(ctx context.Context) error {
	indexed, err := r.reader.Indexed(ctx)
	if err != nil {
		return err
	}
	if !indexed {
		return host.Each(ctx, r.Docs, record.ManifestPrefix, func(m record.Manifest) error { return r.wakeOpen(ctx, m) })
	}
	open, err := r.reader.Open(ctx)
	for _, m := range open {
		err = errors.Join(err, r.wakeOpen(ctx, m))
	}
	return err
}

// wakeOpen is WakeAll for one run.
func (r *Reclaimer) wakeOpen(ctx context.Context, m record.Manifest) error {
	var s run.State
	_, found, err := host.Load(ctx, r.Docs, record.CoordinatorKey(m.Run), &s)
	if err != nil || s.Phase.Ended() || m.Refused != "" {
		return err
	}
	note := record.OpenRun{Schema: record.Schema, Run: m.Run, At: r.Clock.Now().UTC()}
	_, err = host.Save(ctx, r.Docs, record.OpenRunKey(m.Run), note, "")
	if err != nil && !fault.Is(err, fault.Conflict) {
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
}

// keys returns the keys of another document of the runs of the notes.
func keys(notes []document.Doc, of func(identity.RunID) string) []string {
	out := make([]string, len(notes))
	for i, d := range notes {
		id, _ := record.RunFromKey(d.Key)
		out[i] = of(id)
	}
	return out
}

// decode decodes a document into v. It leaves v as it is if the document is absent.
func decode(d document.Doc, v any) error {
	if d.Revision == "" {
		return nil
	}
	return record.Decode(d.Value, v, "document "+d.Key)
}

// apart is the distance of a time from now, in either direction: the clock may
// have been set back since.
func apart(at, now time.Time) time.Duration { return now.Sub(at).Abs() }
