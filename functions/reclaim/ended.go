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
	"rollout/shared/record"
)

// Bounds of the index of ended runs.
const (
	// enteredAtOnce is how many runs a change of the index counts: it notes their ids.
	enteredAtOnce = 100
	// indexWriters is the most concurrent writes of entries.
	indexWriters = 32
)

// moveEnded moves runs that have ended from the index of open runs to that of ended ones:
// entry first, so that a run is in one of them whenever the process ends. A run whose
// documents can't be read stays where it is.
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
			failed = errors.Join(failed, err)
		case d.Revision == "": // it has no manifest any more: there is nothing to show
			failed = errors.Join(failed, r.forgetOpen(ctx, notes[i]))
		default:
			ended = append(ended, m)
			noteOf[m.Run] = notes[i]
		}
	}
	if len(ended) == 0 {
		return failed
	}
	if _, err := enterEnded(ctx, r.Docs, r.reader, ended); err != nil {
		return errors.Join(failed, err)
	}
	ids := idsOf(ended)
	index, err := changeIndex(ctx, r.Docs, func(x record.RunIndex) (record.RunIndex, bool) {
		fresh := without(ids, x.Entered)
		x.Ended, x.Entered = x.Ended+len(fresh), ids
		return x, len(fresh) > 0
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

// enterEnded creates the entries of ended runs, and returns how many of them are new.
func enterEnded(ctx context.Context, docs document.Store, reader *status.Reader, ms []record.Manifest) (
	created int, err error) {
	all, err := reader.ProgressOf(ctx, ms, nil)
	if err != nil {
		return 0, err
	}
	fresh := make([]bool, len(all))
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(indexWriters)
	for i, p := range all {
		group.Go(func() error {
			key, e := status.NewEnded(p)
			_, err := host.Save(groupCtx, docs, key, e, "")
			fresh[i] = err == nil
			if fault.Is(err, fault.Conflict) {
				return nil
			}
			return err
		})
	}
	err = group.Wait()
	for _, f := range fresh {
		if f {
			created++
		}
	}
	return created, err
}

// changeIndex changes the document of the index of ended runs. change returns false to
// leave it as it is.
func changeIndex(ctx context.Context, docs document.Store, change func(record.RunIndex) (record.RunIndex, bool)) (
	record.RunIndex, error) {
	return host.Update(ctx, docs, record.RunIndexKey, func(x record.RunIndex, found bool) (record.RunIndex, bool, error) {
		next, write := change(x)
		next.Schema = record.Schema
		return next, write || !found, nil
	})
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
// names, into it, page after page of manifests, and notes that the index is complete. Once it is,
// BuildIndex is one read. It goes on where an earlier call was interrupted; maxPages bounds
// a call (0 is no bound). It is safe beside everything else, also beside another call.
func (r *Reclaimer) BuildIndex(ctx context.Context, maxPages int) error {
	var x record.RunIndex
	if _, _, err := host.Load(ctx, r.Docs, record.RunIndexKey, &x); err != nil {
		return err
	}
	for page := 0; !x.Built && (maxPages == 0 || page < maxPages); page++ {
		docs, err := r.Docs.List(ctx, record.ManifestPrefix, x.After, indexPage)
		if err != nil {
			return fault.Wrap(err, "list the runs of earlier versions")
		}
		after, created := x.After, 0
		if len(docs) > 0 {
			after = docs[len(docs)-1].Key
			if created, err = r.enterOld(ctx, docs); err != nil {
				return err
			}
		}
		x, err = changeIndex(ctx, r.Docs, func(x record.RunIndex) (record.RunIndex, bool) {
			x.Ended, x.After, x.Built = x.Ended+created, max(x.After, after), len(docs) == 0
			if x.Built {
				x.After = ""
			}
			return x, true
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// enterOld enters runs into the index by name and, if they have ended and are not open
// there, into that of ended runs. It returns how many it entered into the latter. It skips
// manifests that can't be read.
func (r *Reclaimer) enterOld(ctx context.Context, docs []document.Doc) (created int, err error) {
	var all []record.Manifest
	for _, d := range docs {
		m, err := host.DecodeManifest(d)
		if err != nil {
			r.Log.WarnContext(ctx, "a run is not entered into the index: its manifest can't be read", "error", err)
			continue
		}
		all = append(all, m)
	}
	if err := r.enterNames(ctx, all); err != nil {
		return 0, err
	}
	ended, err := r.endedOf(ctx, all)
	if err != nil || len(ended) == 0 {
		return 0, err
	}
	return enterEnded(ctx, r.Docs, r.reader, ended)
}

// enterNames enters runs into the index by name and by input.
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
// out of which Scan moves them.
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
			return nil, err
		}
		if docs[2*i].Revision == "" && (s.Phase.Ended() || m.Refused != "") {
			out = append(out, m)
		}
	}
	return out, nil
}
