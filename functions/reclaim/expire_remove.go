package reclaim

import (
	"context"
	"time"

	"golang.org/x/sync/errgroup"

	"rollout/functions/status"
	"rollout/shared/core/identity"
	"rollout/shared/document"
	"rollout/shared/fault"
	"rollout/shared/record"
)

// statusOfEntry returns what the entry of an ended run says.
func statusOfEntry(d document.Doc) (status.Status, error) {
	if d.Revision == "" {
		return status.Status{}, fault.New(fault.NotFound, "document %s does not exist", d.Key)
	}
	var e status.EndedRun
	err := record.Decode(d.Value, &e, "document "+d.Key)
	return e.Status, err
}

// remove deletes what is left of a run whose manifest is gone, the entry of the index last.
// Repeating it is harmless. What is in named/ by its input stays, as found/<run> does: by these
// two, submit recognizes the input if its folder is copied.
func (e *Expirer) remove(ctx context.Context, of record.Expiring, room *int) (outcome, error) {
	entry, err := e.Docs.GetMany(ctx, []string{of.Entry})
	if err != nil {
		return outcome{}, err
	}
	if entry[0].Revision == "" { // a call that has not saved it, or another one
		return outcome{of, hasExpired}, nil
	}
	s, err := statusOfEntry(entry[0])
	if err != nil {
		return outcome{}, err
	}
	if done, err := e.removeWork(ctx, s.Run, room); err != nil || !done {
		return outcome{Expiring: of}, err
	}
	for of.Shards < s.Shards.Total {
		if *room <= 0 {
			return outcome{Expiring: of}, nil
		}
		n := min(removedAtOnce, s.Shards.Total-of.Shards, *room)
		keys := make([]string, n)
		for i := range keys {
			keys[i] = identity.ShardKey(s.Run, of.Shards+i)
		}
		if err := e.deleteKeys(ctx, keys); err != nil {
			return outcome{}, err
		}
		of.Shards, *room = of.Shards+n, *room-n
	}
	*room -= checksCost
	if err := e.removeNames(ctx, s); err != nil {
		return outcome{}, err
	}
	if err := e.deleteKeys(ctx, runKeys(s.Run)); err != nil {
		return outcome{}, err
	}
	return outcome{of, hasExpired}, e.delete(ctx, entry)
}

// runKeys are the keys of the documents of a run, besides its manifest, its shards and the
// entries of indexes.
func runKeys(id identity.RunID) []string {
	return []string{record.PlanLeaseKey(id), record.PlanKey(id), record.ControlKey(id), record.CoordinatorKey(id),
		record.OutboxKey(record.RunSubject(id)), record.NotifyKey(record.RunSubject(id)), record.BatchKey(id)}
}

// removeWork deletes the work files of a run. It returns false if some are left.
func (e *Expirer) removeWork(ctx context.Context, id identity.RunID, room *int) (done bool, err error) {
	for e.opts.WorkFiles {
		if *room <= 0 {
			return false, nil
		}
		page := min(freePage, *room)
		infos, err := e.Blobs.List(ctx, record.WorkPrefix+string(id)+"/", "", page)
		if err != nil {
			return false, err
		}
		for _, info := range infos {
			if err := e.Blobs.Delete(ctx, info.Key, ""); err != nil && !fault.Is(err, fault.NotFound) {
				return false, fault.Wrap(err, "delete %s", info.Key)
			}
		}
		*room -= len(infos)
		if len(infos) < page {
			break
		}
	}
	return true, nil
}

// removeNames deletes the entries of a run by its name, by its time and under its parent, and those of the
// children that it had: they were refused, or have expired.
func (e *Expirer) removeNames(ctx context.Context, s status.Status) error {
	keys := []string{record.NamedKey(record.NamePrefix(s.Name), s.CreatedAt, s.Run), record.CreatedKey(s.CreatedAt, s.Run)}
	if s.Parent != nil {
		keys = append(keys, record.NamedKey(record.ParentPrefix(s.Parent.Run), s.CreatedAt, s.Run))
	}
	if err := e.deleteKeys(ctx, keys); err != nil {
		return err
	}
	for {
		children, err := e.Docs.List(ctx, record.ParentPrefix(s.Run), "", document.MaxPage)
		if err != nil || len(children) == 0 {
			return err
		}
		if err := e.delete(ctx, children); err != nil {
			return err
		}
	}
}

// deleteKeys deletes those of the documents that exist.
func (e *Expirer) deleteKeys(ctx context.Context, keys []string) error {
	docs, err := e.Docs.GetMany(ctx, keys)
	if err != nil {
		return err
	}
	return e.delete(ctx, docs)
}

// delete deletes those of the documents that exist. One that was written since it was read is a
// Conflict.
func (e *Expirer) delete(ctx context.Context, docs []document.Doc) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(removers)
	for _, d := range docs {
		if d.Revision == "" {
			continue
		}
		group.Go(func() error {
			err := e.Docs.Delete(ctx, d.Key, d.Revision)
			if fault.Is(err, fault.NotFound) {
				return nil
			}
			return fault.Wrap(err, "delete document %s", d.Key)
		})
	}
	return group.Wait()
}

// ExpireAll calls Expire until there is nothing more to do at once, for a process that keeps
// running. It pauses between two calls, so that others may write.
func (e *Expirer) ExpireAll(ctx context.Context) error {
	for {
		more, err := e.Expire(ctx)
		if err != nil || !more {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(expirePause):
		}
	}
}

// expirePause is the pause between two calls of Expire that find more to do.
const expirePause = 100 * time.Millisecond
