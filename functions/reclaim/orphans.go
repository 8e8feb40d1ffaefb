package reclaim

import (
	"context"
	"errors"
	"time"

	"golang.org/x/sync/errgroup"

	"rollout/shared/blob"
	"rollout/shared/document"
	"rollout/shared/fault"
	"rollout/shared/host"
	"rollout/shared/record"
)

// SweepOptions say when SweepOrphans looks.
type SweepOptions struct {
	// Every is how long after a sweep a call does nothing: each one reads as many documents as
	// there are files, which costs money in a cloud. 0 sweeps at every call.
	Every time.Duration
	// Longest bounds a sweep; the next one goes on where it ended. 0 is no bound.
	Longest time.Duration
	// CheckOwner is optional. It returns an error if the bucket is another installation's.
	CheckOwner func(context.Context) error
}

// sweepEvery is how often a cloud's installation looks for orphans, and longestSweep for how long: what
// people and machines wait for comes after it, in a function of a minute.
const (
	sweepEvery   = 23 * time.Hour
	longestSweep = 15 * time.Second
)

// Ages of what a sweep deletes, and bounds of a sweep.
const (
	// partAge is more than an upload lasts and the parts of one are joined.
	partAge = 2 * record.UploadLasts
	// orphanAge is more than requests for an upload are answered.
	orphanAge = record.UploadKept + 2*time.Hour
	maxSwept  = 5000 // deletions, of each kind
)

// SweepOrphans deletes what uploads to the batch API have left behind when they were given up, or
// when a process ended in the middle:
//
//	parts    pending/parts/…  older than 2 hours: their upload is over
//	files    files/file-…     older than 26 hours, and file/<id> does not exist, or is another object
//	uploads  upload/<id>      older than 26 hours: requests for it have been refused for 2 hours
//	expired  file/<id>        that expired 26 hours ago, with its object, unless an open run reads it
//
// The age of an object is that of the upload or less, and after a day an upload becomes no file any
// more: so what is deleted is never about to be used. That file/<id> does not exist says nothing about
// objects from before the documents began or were restored: these stay (OrphanSweep.Since). A file
// that was restored and has expired stays for 26 hours after the first sweep.
//
// A sweep reads at most 20 pages of each kind, and the next one goes on behind them. Of concurrent
// calls both may sweep, which is harmless.
func SweepOrphans(ctx context.Context, p host.Ports, o SweepOptions) error {
	if o.CheckOwner != nil {
		if err := o.CheckOwner(ctx); err != nil {
			return err
		}
	}
	s := sweep{Ports: p.WithSource("reclaim"), now: p.Clock.Now().UTC()}
	return fault.Wrap(s.run(ctx, o), "delete what uploads have left behind")
}

// ForgetSweeps lets the next sweep leave all objects that exist by then. Whoever restores documents
// from a backup calls it: the files since the backup are not among them.
func ForgetSweeps(ctx context.Context, docs document.Store) error {
	d, err := docs.Get(ctx, record.OrphanSweepKey)
	if err == nil {
		err = docs.Delete(ctx, d.Key, d.Revision)
	}
	if fault.Is(err, fault.NotFound) {
		return nil
	}
	return fault.Wrap(err, "delete document %s", record.OrphanSweepKey)
}

// sweep is one call of SweepOrphans.
type sweep struct {
	host.Ports
	now, since time.Time
}

func (s *sweep) run(ctx context.Context, o SweepOptions) error {
	var doc record.OrphanSweep
	rev, found, err := host.Load(ctx, s.Docs, record.OrphanSweepKey, &doc)
	if err != nil || found && apart(doc.At, s.now) < o.Every {
		return err
	}
	if doc.Since.IsZero() {
		doc.Since = s.now
	}
	s.since = doc.Since
	within := ctx
	if o.Longest > 0 {
		var cancel context.CancelFunc
		within, cancel = context.WithTimeout(ctx, o.Longest)
		defer cancel()
	}
	problem := errors.Join(
		s.objects(within, record.UploadPartsPrefix, &doc.Parts, s.oldParts),
		s.objects(within, record.FilesPrefix+record.FileIDPrefix, &doc.Files, s.withoutFile),
		s.uploads(within, &doc.Uploads),
		s.expiredFiles(within, &doc.Expired))
	if within.Err() != nil && ctx.Err() == nil { // the next sweep goes on
		problem = nil
	}
	doc.Schema, doc.At = record.Schema, s.now
	_, err = host.Save(ctx, s.Docs, record.OrphanSweepKey, doc, rev)
	if fault.Is(err, fault.Conflict) { // another call has swept
		err = nil
	}
	return errors.Join(problem, err)
}

// objects deletes objects under the prefix that orphans returns, and moves the cursor.
func (s *sweep) objects(ctx context.Context, prefix string, after *string,
	orphans func(context.Context, []blob.Info) ([]blob.Info, error)) error {
	deleted := 0
	for range maxUploadPages {
		infos, err := s.Blobs.List(ctx, prefix, *after, uploadPage)
		if err != nil {
			return err
		}
		old, err := orphans(ctx, infos)
		if err == nil {
			err = s.deleteObjects(ctx, old)
		}
		if err != nil {
			return err
		}
		if len(infos) < uploadPage {
			*after = ""
			return nil
		}
		*after = infos[len(infos)-1].Key
		if deleted += len(old); deleted >= maxSwept {
			return nil
		}
	}
	return nil
}

// oldParts returns the parts of uploads that are over.
func (s *sweep) oldParts(_ context.Context, infos []blob.Info) (old []blob.Info, err error) {
	for _, i := range infos {
		if s.now.Sub(i.ModTime) >= partAge {
			old = append(old, i)
		}
	}
	return old, nil
}

// withoutFile returns the old objects that are those of no file.
func (s *sweep) withoutFile(ctx context.Context, infos []blob.Info) (orphans []blob.Info, err error) {
	var old []blob.Info
	var keys []string
	for _, i := range infos {
		id, ok := record.FileOfObject(i.Key)
		if ok && s.now.Sub(i.ModTime) >= orphanAge && !i.ModTime.Before(s.since) {
			old, keys = append(old, i), append(keys, record.FileKey(id))
		}
	}
	if len(keys) == 0 {
		return nil, nil
	}
	docs, err := s.Docs.GetMany(ctx, keys)
	if err != nil {
		return nil, err
	}
	for n, d := range docs {
		var f record.File
		if d.Revision != "" && record.Decode(d.Value, &f, "document "+d.Key) != nil {
			continue // of a later version, or damaged: what it names is not known
		}
		if f.Input.Key != old[n].Key {
			orphans = append(orphans, old[n])
		}
	}
	return orphans, nil
}

// uploads deletes the documents of uploads that are not known any more, and moves the cursor.
func (s *sweep) uploads(ctx context.Context, after *string) error {
	deleted := 0
	for range maxUploadPages {
		docs, err := s.Docs.List(ctx, record.UploadPrefix, *after, document.MaxPage)
		if err != nil {
			return err
		}
		if len(docs) == 0 {
			*after = ""
			return nil
		}
		var old []document.Doc
		for _, d := range docs {
			var u record.Upload
			if record.Decode(d.Value, &u, "document "+d.Key) == nil && s.now.Sub(u.Created) >= orphanAge {
				old = append(old, d)
			}
		}
		if err := s.deleteDocuments(ctx, old); err != nil {
			return err
		}
		*after = docs[len(docs)-1].Key
		if deleted += len(old); deleted >= maxSwept {
			return nil
		}
	}
	return nil
}

func (s *sweep) deleteObjects(ctx context.Context, old []blob.Info) error {
	group, within := errgroup.WithContext(ctx)
	group.SetLimit(removers)
	for _, i := range old {
		group.Go(func() error {
			err := s.Blobs.Delete(within, i.Key, "")
			if fault.Is(err, fault.NotFound) {
				return nil
			}
			return fault.Wrap(err, "delete %s", i.Key)
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	if len(old) > 0 {
		s.Log.InfoContext(ctx, "deleted objects that uploads left behind", "objects", len(old), "first", old[0].Key)
	}
	return nil
}

// deleteDocuments deletes documents. One that was changed meanwhile stays until the next sweep.
func (s *sweep) deleteDocuments(ctx context.Context, old []document.Doc) error {
	group, within := errgroup.WithContext(ctx)
	group.SetLimit(removers)
	for _, d := range old {
		group.Go(func() error {
			err := s.Docs.Delete(within, d.Key, d.Revision)
			if fault.Is(err, fault.NotFound) || fault.Is(err, fault.Conflict) {
				return nil
			}
			return fault.Wrap(err, "delete document %s", d.Key)
		})
	}
	return group.Wait()
}
