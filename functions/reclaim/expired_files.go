package reclaim

import (
	"context"
	"errors"

	"golang.org/x/sync/errgroup"

	"rollout/shared/core/identity"
	"rollout/shared/document"
	"rollout/shared/fault"
	"rollout/shared/host"
	"rollout/shared/observe"
	"rollout/shared/record"
)

// expiredFiles deletes the uploaded files that expired orphanAge ago, and moves the cursor. Their
// batches have become runs by then: a file that an open run reads stays until the run has ended. The
// object goes first: a file whose document is left is found again.
func (s *sweep) expiredFiles(ctx context.Context, after *string) error {
	var read map[string]bool // the inputs of open runs; nil before they are needed
	deleted := 0
	for range maxUploadPages {
		docs, err := s.Docs.List(ctx, record.FilePrefix, *after, document.MaxPage)
		if err != nil {
			return err
		}
		if len(docs) == 0 {
			*after = ""
			return nil
		}
		var old []expiredFile
		for _, d := range docs {
			key, ok := s.expired(d)
			if !ok {
				continue
			}
			if read == nil {
				if read, ok = s.inputsOfOpenRuns(ctx); !ok {
					return nil
				}
			}
			if !read[key] {
				old = append(old, expiredFile{d, key})
			}
		}
		if err := s.deleteFiles(ctx, old); err != nil {
			return err
		}
		*after = docs[len(docs)-1].Key
		if deleted += len(old); deleted >= maxSwept {
			return nil
		}
	}
	return nil
}

// expired returns the key of the object of a file that expired long enough ago, also since its
// document may have been restored: until then people may copy it.
func (s *sweep) expired(d document.Doc) (key string, ok bool) {
	var f record.File
	if record.Decode(d.Value, &f, "document "+d.Key) != nil || f.Expires.IsZero() {
		return "", false
	}
	last := f.Expires
	if f.Created.Before(s.since) && s.since.After(last) {
		last = s.since
	}
	id, ofFile := record.FileOfObject(f.Input.Key)
	return f.Input.Key, ofFile && record.FileKey(id) == d.Key && s.now.Sub(last) >= orphanAge
}

// expiredFile is the document of a file, and the key of its object.
type expiredFile struct {
	document.Doc
	object string
}

// deleteFiles deletes each file as a whole, so that a call that is cut off has done its part.
func (s *sweep) deleteFiles(ctx context.Context, old []expiredFile) error {
	group, within := errgroup.WithContext(ctx)
	group.SetLimit(removers)
	for _, f := range old {
		group.Go(func() error {
			err := s.Blobs.Delete(within, f.object, "")
			if err == nil || fault.Is(err, fault.NotFound) {
				err = s.Docs.Delete(within, f.Key, f.Revision)
			}
			if fault.Is(err, fault.NotFound) || fault.Is(err, fault.Conflict) {
				return nil
			}
			return fault.Wrap(err, "delete the expired file of %s", f.Key)
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	if len(old) > 0 {
		s.Log.InfoContext(ctx, "deleted files that have expired", "files", len(old), "first", old[0].object)
	}
	return nil
}

// inputsOfOpenRuns returns the keys of the files that open runs read. It returns false if they are
// not known, because a document can't be read: then no file is to be deleted.
func (s *sweep) inputsOfOpenRuns(ctx context.Context) (keys map[string]bool, ok bool) {
	var ids []identity.RunID
	var failed error
	for d, err := range document.All(ctx, s.Docs, record.OpenRunPrefix) {
		if err != nil {
			failed = err
			break
		}
		if id, ok := record.RunFromKey(d.Key); ok {
			ids = append(ids, id)
		}
	}
	manifests, err := host.LoadManifests(ctx, s.Docs, ids)
	if failed = errors.Join(failed, err); failed != nil {
		s.Log.WarnContext(ctx, "expired files stay: can't tell which files the open runs read", observe.KeyError, failed)
		return nil, false
	}
	keys = map[string]bool{}
	for _, m := range manifests {
		for _, in := range m.Inputs {
			keys[in.Key] = true
		}
	}
	return keys, true
}
