package reclaim

import (
	"context"
	"errors"
	"slices"
	"time"

	"rollout/functions/status"
	"rollout/shared/core/identity"
	"rollout/shared/core/run"
	"rollout/shared/document"
	"rollout/shared/fault"
	"rollout/shared/host"
	"rollout/shared/observe"
	"rollout/shared/record"
	"rollout/shared/snapshot"
	"rollout/shared/text"
)

// Expirer deletes the documents of runs that ended long ago. It keeps those of a run that a
// child needs: a run whose items it asks again, and which has not expired itself; and, for about
// a day, those of a run of which people are to be told yet. What users
// have of a run stays: its input, its files in runs/ and the snapshots of a training.
//
//	index of ended runs ─▶ old ones that nothing needs ─▶ noted as expiring ─▶ no child came? ─▶ noted as checked
//	                                    │ needed                                  │ needed
//	                                    └─▶ the next ones                         └─▶ kept
//	checked ─▶ found/<run> ─▶ agents' artifacts that no other run needs ─▶ manifest
//	                       ─▶ a while later: work files, shards, plan, control, state, names, entry ─▶ counted as expired
//
// From the deletion of the manifest on, every reader finds that the run has expired. found/<run>
// is written before, so that the input of the run is never taken for a new one. The entry of the
// index, by which the rest is found, goes last. So a crash between any two deletes loses
// nothing: the next call goes on, and repeats at most what is harmless.
//
// Submit notes a child under its parent before it looks whether the parent is expiring, and
// Expirer notes the parent as expiring before it looks for children: one of them sees the other.
type Expirer struct {
	host.Ports
	opts ExpireOptions
}

// ExpireOptions say what an Expirer deletes.
type ExpireOptions struct {
	Keep time.Duration // how long after its end the documents of a run are kept
	// WorkFiles also deletes work/<run>/. In a cloud, the lifecycle of the bucket does that.
	WorkFiles bool
}

// Bounds of a call of Expire.
const (
	expiringAtOnce = 100             // runs that are noted as expiring
	maxNeededPages = 3               // of the index, with runs that are all needed
	maxRemoved     = 2000            // documents and objects that are looked at to delete them
	removedAtOnce  = 500             // documents that are read at once
	removers       = 32              // concurrent deletes
	submitTime     = time.Hour       // in which submit makes a run whose name it has noted
	goneFor        = 2 * time.Minute // from the deletion of a manifest to that of the rest
	deliveryTime   = 25 * time.Hour  // after which no event is delivered any more
)

// NewExpirer returns an expirer.
func NewExpirer(p host.Ports, o ExpireOptions) *Expirer {
	return &Expirer{Ports: p.WithSource("reclaim"), opts: o}
}

// Expire does a bounded part of the work. more says that the next call finds more to do at
// once; otherwise call it every minute or, where that costs money, less often. It is safe
// beside everything else, also beside another call. It does nothing until BuildIndex has ended.
func (e *Expirer) Expire(ctx context.Context) (more bool, err error) {
	now := e.Clock.Now().UTC()
	var x record.RunIndex
	if _, _, err := host.Load(ctx, e.Docs, record.RunIndexKey, &x); err != nil || !x.Linked {
		return false, err
	}
	if len(x.Expiring) < expiringAtOnce { // also beside runs of which something can't be deleted
		if x, err = e.choose(ctx, x, now); err != nil || len(x.Expiring) == 0 {
			return false, err
		}
	}
	room := maxRemoved
	next := map[string]outcome{}
	for _, of := range x.Expiring {
		if room <= 0 {
			break
		}
		out, stepErr := e.step(ctx, of, now, &room)
		if ctx.Err() != nil {
			return false, errors.Join(err, stepErr)
		}
		if stepErr != nil {
			err = errors.Join(err, fault.Wrap(stepErr, "delete the documents of run %s", of.Run()))
			continue
		}
		if out != (outcome{Expiring: of}) {
			next[of.Entry] = out
			more = more || out.Gone.IsZero()
		}
	}
	more = more || room <= 0
	if len(next) == 0 {
		return more, err
	}
	left, saveErr := e.save(ctx, next)
	return more || left == 0, errors.Join(err, saveErr)
}

// outcome is what became of a run that was expiring.
type outcome struct {
	record.Expiring
	end end
}

// end is how expiring a run has ended, if it has.
type end int

const (
	goesOn end = iota
	isKept
	hasExpired
)

// save saves what became of runs, and returns how many are expiring.
func (e *Expirer) save(ctx context.Context, next map[string]outcome) (left int, err error) {
	x, err := changeIndex(ctx, e.Docs, func(x record.RunIndex) (record.RunIndex, bool, error) {
		var expiring []record.Expiring
		for _, of := range x.Expiring { // another call may have saved a later state
			out, ok := next[of.Entry]
			switch {
			case !ok:
				expiring = append(expiring, of)
			case out.end == hasExpired:
				x.Ended, x.Expired = max(0, x.Ended-1), x.Expired+1
			case out.end == goesOn || of.Checked:
				of.Checked = of.Checked || out.Checked
				if of.Gone.IsZero() {
					of.Gone = out.Gone
				}
				of.Shards = max(of.Shards, out.Shards)
				expiring = append(expiring, of)
			}
		}
		x.Expiring = expiring
		return x, true, nil
	})
	return len(x.Expiring), err
}

// choose notes runs as expiring, the last to end first. It passes over runs that are needed, for
// a few pages; the next call goes on behind them.
func (e *Expirer) choose(ctx context.Context, x record.RunIndex, now time.Time) (record.RunIndex, error) {
	first := record.EndedAfter(now.Add(-e.opts.Keep))
	after, before := max(first, x.ExpireAfter), x.ExpireAfter
	var chosen []record.Expiring
	for range maxNeededPages {
		docs, err := e.Docs.List(ctx, record.EndedPrefix, after, expiringAtOnce)
		if err != nil {
			return x, fault.Wrap(err, "list the runs that ended before")
		}
		if len(docs) == 0 {
			after = ""
			break
		}
		for _, d := range docs {
			after = d.Key
			if len(x.Expiring)+len(chosen) >= expiringAtOnce || isExpiring(x, d.Key) {
				continue
			}
			s, err := statusOfEntry(d)
			if err != nil {
				e.Log.DebugContext(ctx, "an entry of an ended run can't be read", observe.KeyError, err)
				continue
			}
			kept, err := e.mustKeep(ctx, s.Run, now)
			if err != nil {
				return x, err
			}
			if kept == "" {
				chosen = append(chosen, record.Expiring{Entry: d.Key})
			}
		}
		if len(chosen) > 0 {
			after = before // what is chosen leaves the index
			break
		}
	}
	if len(chosen) == 0 && after == before {
		return x, nil
	}
	return changeIndex(ctx, e.Docs, func(x record.RunIndex) (record.RunIndex, bool, error) {
		x.ExpireAfter = after
		for _, of := range chosen { // another call may have been faster
			if len(x.Expiring) < expiringAtOnce && !isExpiring(x, of.Entry) {
				x.Expiring = append(x.Expiring, of)
			}
		}
		return x, true, nil
	})
}

// isExpiring reports whether the run with that entry is expiring.
func isExpiring(x record.RunIndex, entry string) bool {
	return slices.ContainsFunc(x.Expiring, func(of record.Expiring) bool { return of.Entry == entry })
}

// mustKeep returns why the documents of an ended run are kept; "" if they need not be.
func (e *Expirer) mustKeep(ctx context.Context, id identity.RunID, now time.Time) (why string, err error) {
	docs, err := e.Docs.GetMany(ctx, []string{record.OpenRunKey(id), record.ManifestKey(id), record.CoordinatorKey(id),
		record.OutboxKey(record.RunSubject(id))})
	if err != nil {
		return "", fault.Wrap(err, "read run %s", id)
	}
	if docs[0].Revision != "" {
		return "it is in the index of open runs", nil
	}
	m, err := host.DecodeManifest(docs[1])
	s := run.New(id)
	if err = errors.Join(err, decode(docs[2], &s)); err != nil {
		return err.Error(), nil
	}
	if m.Run != "" && m.Refused == "" && !s.Phase.Ended() {
		return "it has not ended", nil
	}
	var told record.OutboxEntry
	if docs[3].Revision != "" && decode(docs[3], &told) == nil && apart(told.At, now) < deliveryTime {
		return "its events are not delivered", nil
	}
	child, err := e.neededBy(ctx, id, now)
	if err != nil || child == "" {
		return "", err
	}
	return "run " + string(child) + " asks its items again", nil
}

// neededBy returns a child of the run that has not expired, or may just be made; "" without
// one. A child that was refused needs nothing.
func (e *Expirer) neededBy(ctx context.Context, id identity.RunID, now time.Time) (identity.RunID, error) {
	for after := ""; ; {
		docs, err := e.Docs.List(ctx, record.ParentPrefix(id), after, expiringAtOnce)
		if err != nil || len(docs) == 0 {
			return "", fault.Wrap(err, "look for children of run %s", id)
		}
		after = docs[len(docs)-1].Key
		children := make([]identity.RunID, len(docs))
		for i, d := range docs {
			children[i], _ = record.RunOfEntry(d.Key)
		}
		ms, err := host.LoadManifests(ctx, e.Docs, children)
		if err != nil {
			return "", err
		}
		for i, d := range docs {
			var note record.NamedRun
			switch {
			case ms[i].Run != "" && ms[i].Refused == "":
				return children[i], nil
			case ms[i].Run != "":
			case decode(d, &note) != nil || apart(note.Created, now) < submitTime:
				return children[i], nil
			}
		}
	}
}

// step does the next part of the work on a run. It subtracts the documents and objects that it
// looked at from the room that there is.
func (e *Expirer) step(ctx context.Context, of record.Expiring, now time.Time, room *int) (outcome, error) {
	switch {
	case !of.Checked:
		*room -= checksCost
		return e.check(ctx, of, now)
	case of.Gone.IsZero():
		*room -= checksCost
		return e.hide(ctx, of, now)
	case apart(of.Gone, now) < goneFor:
		return outcome{Expiring: of}, nil
	}
	return e.remove(ctx, of, room)
}

// check finds out whether the run must be kept: see mustKeep. Nothing of it is deleted before
// the result is saved: another call may have found otherwise.
func (e *Expirer) check(ctx context.Context, of record.Expiring, now time.Time) (outcome, error) {
	_, err := e.Docs.Get(ctx, of.Entry)
	if fault.Is(err, fault.NotFound) { // another call has deleted all since it was chosen
		return outcome{of, isKept}, nil
	}
	why := ""
	if err == nil {
		why, err = e.mustKeep(ctx, of.Run(), now)
	}
	if err != nil {
		return outcome{}, err
	}
	if why != "" {
		e.Log.DebugContext(ctx, "the documents of an ended run are kept", observe.KeyRun, of.Run(), "reason", why)
		return outcome{of, isKept}, nil
	}
	of.Checked = true
	return outcome{Expiring: of}, nil
}

// hide deletes the manifest of a run, after it has noted what stays known of the run.
func (e *Expirer) hide(ctx context.Context, of record.Expiring, now time.Time) (outcome, error) {
	docs, err := e.Docs.GetMany(ctx, []string{of.Entry, record.ManifestKey(of.Run())})
	if err != nil {
		return outcome{}, err
	}
	s, err := statusOfEntry(docs[0])
	if fault.Is(err, fault.NotFound) { // another call has deleted all
		return outcome{of, hasExpired}, nil
	}
	if err == nil {
		err = e.noteExpired(ctx, s, docs[1], now)
	}
	if err == nil {
		err = e.releaseArtifacts(ctx, docs[1])
	}
	if err == nil {
		err = e.delete(ctx, docs[1:])
	}
	if err != nil {
		return outcome{}, err
	}
	e.Log.InfoContext(ctx, "the documents of an ended run have expired", observe.KeyRun, s.Run, "name", s.Name)
	of.Gone = now
	return outcome{Expiring: of}, nil
}

// releaseArtifacts deletes the artifacts of the run's agents that no other run needs. The manifest is
// absent if an earlier call has done so.
func (e *Expirer) releaseArtifacts(ctx context.Context, manifest document.Doc) error {
	m, err := host.DecodeManifest(manifest)
	if err != nil || m.Run == "" {
		return err
	}
	contents := snapshot.Store{Blobs: e.Blobs, Docs: e.Docs, Clock: e.Clock}
	for _, a := range m.Artifacts {
		if id, ok := identity.ParseContentID(a.Content); ok {
			if err := contents.ReleaseOfRun(ctx, id, m.Run); err != nil {
				return err
			}
		}
	}
	return nil
}

// noteExpired writes found/<run>. The manifest is absent if an earlier call has done so.
func (e *Expirer) noteExpired(ctx context.Context, s status.Status, manifest document.Doc, now time.Time) error {
	m, err := host.DecodeManifest(manifest)
	if err != nil || m.Run == "" {
		return err
	}
	x := &record.Expired{Name: text.Truncate(s.Name, maxExpiredName, ""), Phase: string(s.Phase), EndedAt: s.Ended(),
		At: now}
	if m.InputCount() == 1 {
		x.Version = m.Inputs[0].Version
	}
	_, err = host.Update(ctx, e.Docs, record.FoundKey(s.Run),
		func(f record.FoundInput, found bool) (record.FoundInput, bool, error) {
			if !found {
				f.Run = s.Run
			}
			f.Schema, f.Expired = record.Schema, x
			return f, true, nil
		})
	return err
}

// maxExpiredName bounds the name in found/<run>, in bytes.
const maxExpiredName = 200
