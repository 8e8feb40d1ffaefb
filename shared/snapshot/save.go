package snapshot

import (
	"context"
	"io"
	"io/fs"

	"github.com/oklog/ulid/v2"

	"rollout/shared/blob"
	"rollout/shared/core/identity"
	"rollout/shared/document"
	"rollout/shared/fault"
	"rollout/shared/host"
	"rollout/shared/record"
)

// Save stores the folder as a snapshot of the run. It streams, so that its memory does
// not depend on the size of the files. If the run has a snapshot of the same content,
// Save returns that one as it was first saved.
func (s Store) Save(ctx context.Context, folder fs.FS, d Details) (Snapshot, error) {
	if err := d.check(); err != nil {
		return Snapshot{}, err
	}
	save := ulid.Make().String()
	id, length, err := s.upload(ctx, record.PendingPrefix+save, folder)
	if err != nil {
		return Snapshot{}, fault.Wrap(err, "save a snapshot of run %s", d.Run)
	}
	snap := Snapshot{
		Schema: record.Schema, ID: id.String(), Kind: d.Kind, Run: d.Run, CreatedAt: s.Clock.Now().UTC(),
		Label: d.Label, Parts: []Part{{RoleTar, id.String(), length}}, Algorithm: d.Algorithm, Meta: d.Meta, Save: save,
	}
	published, err := s.publish(ctx, snap)
	if err != nil {
		return Snapshot{}, fault.Wrap(err, "save snapshot %s of run %s", snap.ID, d.Run)
	}
	// The snapshot exists. If this fails, the lifecycle of pending/ deletes the object.
	_ = s.Blobs.Delete(ctx, record.PendingPrefix+save, "")
	return published, nil
}

// upload streams the folder's archive into an object. It returns the content id and the
// length.
func (s Store) upload(ctx context.Context, key string, folder fs.FS) (identity.ContentID, int64, error) {
	read, write := io.Pipe()
	hash := identity.NewHasher()
	written := make(chan struct{})
	go func() {
		defer close(written)
		write.CloseWithError(writeArchive(io.MultiWriter(hash, write), folder, s.Limits.orDefault()))
	}()
	info, err := s.Blobs.Put(ctx, key, read, blob.PutOptions{CreateOnly: true})
	_ = read.Close() // never fails; it ends the writer if Put did not read to the end
	<-written
	return hash.Sum(), info.Size, err
}

// publish names the save in the content's document, copies the bytes to their content's
// key, and writes the snapshot's document, in this order.
func (s Store) publish(ctx context.Context, snap Snapshot) (Snapshot, error) {
	for range maxRaces {
		if err := s.addReference(ctx, snap.ID, reference{Run: snap.Run, Save: snap.Save, At: snap.CreatedAt}); err != nil {
			return snap, err
		}
		if err := s.place(ctx, snap); err != nil {
			return snap, err
		}
		published, err := s.create(ctx, snap)
		if err != nil || published.Save != snap.Save {
			return published, err
		}
		// The write may have been repeated because its reply was lost. If another process pruned the
		// snapshot in between, the repetition brought it back without its bytes.
		held, err := s.needs(ctx, snap.ID, snap.Save)
		if err != nil || held {
			return snap, err
		}
		if err := s.withdraw(ctx, snap); err != nil {
			return snap, err
		}
	}
	return snap, errPruned()
}

func errPruned() error {
	return fault.New(fault.Unavailable, "another process pruned it %d times", maxRaces)
}

// create writes the snapshot's document. If the run has a snapshot of that content, it returns
// that one, and takes the reference of the save back.
func (s Store) create(ctx context.Context, snap Snapshot) (Snapshot, error) {
	for range maxRaces {
		_, err := host.Save(ctx, s.Docs, Key(snap.Run, snap.ID), snap, "")
		if !fault.Is(err, fault.Conflict) {
			return snap, err
		}
		var first Snapshot
		_, found, err := host.Load(ctx, s.Docs, Key(snap.Run, snap.ID), &first)
		if err != nil {
			return snap, err
		}
		if found {
			if first.Save != snap.Save { // if equal, only the reply to this write was lost
				err = s.removeReference(ctx, snap.ID, snap.Save)
			}
			return first, err
		}
	}
	return snap, errPruned()
}

// withdraw deletes the snapshot's document, unless another save has written it since.
func (s Store) withdraw(ctx context.Context, snap Snapshot) error {
	now, rev, err := s.load(ctx, snap.Run, snap.ID)
	if err == nil && now.Save == snap.Save {
		err = s.Docs.Delete(ctx, Key(snap.Run, snap.ID), rev)
	}
	if fault.Is(err, fault.NotFound) || fault.Is(err, fault.Conflict) {
		return nil
	}
	return err
}

// place copies the bytes to the key of their content. An object at that key has these
// bytes unless it was damaged. place verifies it and replaces a damaged one, because a
// restore would find the damage too late.
func (s Store) place(ctx context.Context, snap Snapshot) error {
	id, length, err := snap.part()
	if err != nil {
		return err
	}
	key := identity.ContentKey(id)
	for range maxRaces {
		_, err = s.Blobs.Copy(ctx, key, record.PendingPrefix+snap.Save)
		if !fault.Is(err, fault.Conflict) {
			return err
		}
		version, whole, err := s.verify(ctx, id, length)
		if err != nil || whole {
			return err
		}
		if version == "" {
			continue
		}
		if err := s.Blobs.Delete(ctx, key, version); err != nil && !fault.Is(err, fault.Conflict) {
			return err
		}
	}
	return fault.New(fault.Unavailable, "%s is damaged, and another process restores it after every removal", key)
}

// verify reports whether the object of a content has its bytes, and returns its version.
func (s Store) verify(ctx context.Context, id identity.ContentID,
	length int64) (version string, whole bool, err error) {
	body, info, err := s.Blobs.Get(ctx, identity.ContentKey(id), blob.GetOptions{})
	if fault.Is(err, fault.NotFound) { // removed in between
		return "", false, nil
	}
	if err != nil {
		return "", false, err
	}
	defer body.Close() // read only
	if info.Size != length {
		return info.Version, false, nil
	}
	h := identity.NewHasher()
	_, err = io.Copy(h, body)
	return info.Version, h.Sum() == id, err
}

// maxRaces bounds how often a save starts again because another process was first.
const maxRaces = 8

// load returns the run's snapshot and its document's revision.
func (s Store) load(ctx context.Context, run identity.RunID,
	id string) (snap Snapshot, rev document.Revision, err error) {
	rev, found, err := host.Load(ctx, s.Docs, Key(run, id), &snap)
	if err == nil && !found {
		err = fault.New(fault.NotFound, "run %s has no snapshot %.64s", run, id)
	}
	return snap, rev, err
}
