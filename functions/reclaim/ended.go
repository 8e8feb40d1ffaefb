package reclaim

import (
	"context"
	"errors"
	"slices"

	"golang.org/x/sync/errgroup"

	"rollout/functions/status"
	"rollout/shared/core/identity"
	"rollout/shared/core/run"
	"rollout/shared/document"
	"rollout/shared/fault"
	"rollout/shared/host"
	"rollout/shared/observe"
	"rollout/shared/record"
)

// Bounds of the index of ended runs.
const (
	// enteredAtOnce is how many runs a change of the index counts: it notes their ids.
	enteredAtOnce = 100
	// maxEntered bounds the ids that the index notes: they are read with those of a change.
	maxEntered = document.MaxKeys - enteredAtOnce
	// indexWriters is the most concurrent writes of entries.
	indexWriters = 32
)

// moveEnded moves runs that have ended from the index of open runs to that of ended ones:
// entry first, so that a run is in one of them whenever the process ends. A run that can't
// be entered stays where it is, and stops no other; it is logged once.
func (r *Reclaimer) moveEnded(ctx context.Context, notes []document.Doc) (failed error) {
	for notes := range slices.Chunk(notes, enteredAtOnce) {
		failed = errors.Join(failed, r.movePart(ctx, notes))
	}
	return failed
}

// movePart is moveEnded for at most enteredAtOnce runs.
func (r *Reclaimer) movePart(ctx context.Context, notes []document.Doc) error {
	docs, err := r.Docs.GetMany(ctx, keys(notes, record.ManifestKey))
	if err != nil {
		return fault.Wrap(err, "read the manifests of ended runs")
	}
	var ended []record.Manifest
	var failed error
	noteOf := map[identity.RunID]document.Doc{}
	for i, d := range docs {
		m, err := host.DecodeManifest(d)
		switch {
		case err != nil:
			id, _ := record.RunFromKey(notes[i].Key)
			r.leaveOpen(ctx, id, err)
		case d.Revision == "": // its manifest is gone: nothing is left to show
			failed = errors.Join(failed, r.forgetOpen(ctx, notes[i]))
		default:
			ended = append(ended, m)
			noteOf[m.Run] = notes[i]
		}
	}
	if err := r.notifier.Ended(ctx, ended); err != nil {
		return errors.Join(failed, err)
	}
	ended, err = r.enterEnded(ctx, ended, r.leaveOpen)
	if err != nil || len(ended) == 0 {
		return errors.Join(failed, err)
	}
	ids := idsOf(ended)
	index, err := changeIndex(ctx, r.Docs, func(x record.RunIndex) (record.RunIndex, bool, error) {
		open, err := r.stillOpen(ctx, slices.Concat(x.Entered, without(ids, x.Entered)))
		fresh := without(open, x.Entered)
		x.Ended, x.Entered = x.Ended+len(fresh), open[max(0, len(open)-maxEntered):]
		return x, len(fresh) > 0, err
	})
	if err != nil {
		return errors.Join(failed, err)
	}
	r.unindexed = r.unindexed || !index.Built
	for _, id := range ids {
		failed = errors.Join(failed, r.forgetOpen(ctx, noteOf[id]))
	}
	return failed
}

// leaveOpen notes that an ended run can't be entered, for which Scan does not try it again,
// and logs it the first time.
func (r *Reclaimer) leaveOpen(ctx context.Context, id identity.RunID, why error) {
	if !r.damaged[id] {
		r.damaged[id] = true
		r.Log.WarnContext(ctx, "an ended run stays among the open ones: it can't be entered into the index",
			observe.KeyRun, id, observe.KeyError, why)
	}
}

// enterEnded creates the entries of ended runs, and returns the runs that have one now. It
// passes those that can't have one to refuse. If it returns an error, more may have been
// entered than none.
func (r *Reclaimer) enterEnded(ctx context.Context, ms []record.Manifest,
	refuse func(context.Context, identity.RunID, error)) (entered []record.Manifest, err error) {
	err = r.enterTogether(ctx, ms)
	if err == nil || !ofOneRun(err) {
		return ms, err
	}
	for _, m := range ms {
		switch err := r.enterTogether(ctx, []record.Manifest{m}); {
		case err == nil:
			entered = append(entered, m)
		case ofOneRun(err):
			refuse(ctx, m.Run, err)
		default:
			return nil, err
		}
	}
	return entered, nil
}

// ofOneRun reports whether an error is about the documents or the entry of a run, so that
// repeating it fails, and others may succeed.
func ofOneRun(err error) bool {
	switch fault.KindOf(err) {
	case fault.Throttled, fault.Unavailable, fault.Denied, fault.Canceled:
		return false
	}
	return true
}

// enterTogether creates the entries of runs. It fails if that of one run can't be made.
func (r *Reclaimer) enterTogether(ctx context.Context, ms []record.Manifest) error {
	all, err := r.reader.ProgressOf(ctx, ms, nil)
	if err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(indexWriters)
	for _, p := range all {
		group.Go(func() error {
			key, e := status.NewEnded(p)
			_, err := host.Save(ctx, r.Docs, key, e, "")
			if fault.Is(err, fault.Conflict) {
				return nil
			}
			return err
		})
	}
	return group.Wait()
}

// changeIndex changes the document of the index of ended runs. change returns false to
// leave it as it is. What change reads of other documents is as of a time after that of the
// index, and nothing was counted between this and the write.
func changeIndex(ctx context.Context, docs document.Store,
	change func(record.RunIndex) (record.RunIndex, bool, error)) (record.RunIndex, error) {
	return host.Update(ctx, docs, record.RunIndexKey, func(x record.RunIndex, found bool) (record.RunIndex, bool, error) {
		next, write, err := change(x)
		next.Schema = record.Schema
		return next, write || !found, err
	})
}

// stillOpen returns those of the runs that have a note in the index of open runs. Another
// scan that has moved a run has counted it before it deleted the note.
func (r *Reclaimer) stillOpen(ctx context.Context, ids []identity.RunID) (open []identity.RunID, err error) {
	keys := make([]string, len(ids))
	for i, id := range ids {
		keys[i] = record.OpenRunKey(id)
	}
	docs, err := r.Docs.GetMany(ctx, keys)
	if err != nil {
		return nil, fault.Wrap(err, "look which ended runs are to be counted")
	}
	for i, d := range docs {
		if d.Revision != "" {
			open = append(open, ids[i])
		}
	}
	return open, nil
}

// countEnded counts the entries of ended runs, but for those of runs that Scan enters just
// now and counts afterwards: they are still open, and are not among those counted already.
func (r *Reclaimer) countEnded(ctx context.Context, counted []identity.RunID) (n int, err error) {
	entered := map[identity.RunID]bool{}
	for d, err := range document.All(ctx, r.Docs, record.EndedPrefix) {
		if err != nil {
			return 0, fault.Wrap(err, "count the ended runs")
		}
		if id, ok := record.RunOfEntry(d.Key); ok {
			entered[id] = true
		}
	}
	for d, err := range document.All(ctx, r.Docs, record.OpenRunPrefix) {
		if err != nil {
			return 0, fault.Wrap(err, "count the ended runs")
		}
		if id, ok := record.RunFromKey(d.Key); ok && !slices.Contains(counted, id) {
			delete(entered, id)
		}
	}
	return len(entered), nil
}

func idsOf(ms []record.Manifest) []identity.RunID {
	out := make([]identity.RunID, len(ms))
	for i, m := range ms {
		out[i] = m.Run
	}
	return out
}

// without returns the ids that are not among the others.
func without(ids, others []identity.RunID) []identity.RunID {
	return slices.DeleteFunc(slices.Clone(ids), func(id identity.RunID) bool { return slices.Contains(others, id) })
}

// indexPage is how many manifests of earlier versions are entered at once.
const indexPage = 200

// BuildIndex enters the runs of earlier versions, which wrote no index of ended runs and of
// names, into it, page after page of manifests, and notes that the index is complete. The
// index of an earlier version may lack the children of runs: then it enters these. Once all is
// done, BuildIndex is one read. It goes on where an earlier call was interrupted; maxPages bounds
// a call; 0 is any number. It is safe beside everything else, also beside another call.
func (r *Reclaimer) BuildIndex(ctx context.Context, maxPages int) error {
	var x record.RunIndex
	if _, _, err := host.Load(ctx, r.Docs, record.RunIndexKey, &x); err != nil {
		return err
	}
	for page := 0; !x.Linked && (maxPages == 0 || page < maxPages); page++ {
		docs, err := r.Docs.List(ctx, record.ManifestPrefix, x.After, indexPage)
		if err != nil {
			return fault.Wrap(err, "list the runs of earlier versions")
		}
		after := x.After
		if len(docs) > 0 {
			after = docs[len(docs)-1].Key
			if err := r.enterOld(ctx, docs, x.Built); err != nil {
				return err
			}
		}
		x, err = changeIndex(ctx, r.Docs, func(x record.RunIndex) (record.RunIndex, bool, error) {
			switch {
			case x.Linked: // another call was first
				return x, false, nil
			case len(docs) > 0:
				x.After = max(x.After, after)
				return x, true, nil
			}
			built := x.Built
			x.Built, x.Linked, x.After = true, true, ""
			if built {
				return x, true, nil
			}
			var err error
			x.Ended, err = r.countEnded(ctx, x.Entered)
			return x, true, err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// enterOld enters runs into the index by name and, if they have ended, are not open there and
// it is not built, into that of ended runs. It logs and skips those whose documents can't be
// read.
func (r *Reclaimer) enterOld(ctx context.Context, docs []document.Doc, built bool) error {
	var all []record.Manifest
	for _, d := range docs {
		m, err := host.DecodeManifest(d)
		if err != nil {
			id, _ := record.RunFromKey(d.Key)
			r.skip(ctx, id, err)
			continue
		}
		all = append(all, m)
	}
	if err := r.enterNames(ctx, all); err != nil || built {
		return err
	}
	ended, err := r.endedOf(ctx, all)
	if err != nil || len(ended) == 0 {
		return err
	}
	_, err = r.enterEnded(ctx, ended, r.skip)
	return err
}

// skip logs that a run of an earlier version can't be entered.
func (r *Reclaimer) skip(ctx context.Context, id identity.RunID, why error) {
	r.Log.WarnContext(ctx, "a run is not entered into the index", observe.KeyRun, id, observe.KeyError, why)
}

// enterNames enters runs into the index by name, by input and by parent.
func (r *Reclaimer) enterNames(ctx context.Context, ms []record.Manifest) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(indexWriters)
	for _, m := range ms {
		for _, e := range record.NamedEntries(m, !r.stateless) {
			group.Go(func() error {
				_, err := host.Save(ctx, r.Docs, e.Key, e.NamedRun, "")
				if fault.Is(err, fault.Conflict) {
					return nil
				}
				return err
			})
		}
	}
	return group.Wait()
}

// endedOf returns those of the runs that have ended and are not in the index of open runs,
// out of which Scan moves them. It logs and skips those whose state can't be read.
func (r *Reclaimer) endedOf(ctx context.Context, ms []record.Manifest) (out []record.Manifest, err error) {
	keys := make([]string, 0, 2*len(ms))
	for _, m := range ms {
		keys = append(keys, record.OpenRunKey(m.Run), record.CoordinatorKey(m.Run))
	}
	docs, err := r.Docs.GetMany(ctx, keys)
	if err != nil {
		return nil, fault.Wrap(err, "read the runs of earlier versions")
	}
	for i, m := range ms {
		s := run.New(m.Run)
		if err := decode(docs[2*i+1], &s); err != nil {
			r.skip(ctx, m.Run, err)
			continue
		}
		if docs[2*i].Revision == "" && (s.Phase.Ended() || m.Refused != "") {
			out = append(out, m)
		}
	}
	return out, nil
}
