package submit

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"slices"

	"rollout/events"
	"rollout/shared/blob"
	"rollout/shared/config"
	"rollout/shared/core/identity"
	"rollout/shared/document"
	"rollout/shared/fault"
	"rollout/shared/host"
	"rollout/shared/input"
	"rollout/shared/observe"
	"rollout/shared/record"
	"rollout/shared/shardtable"
)

// maxEarlier bounds the earlier runs of an object's key and size that are looked at.
const maxEarlier = 100

// earlierUploads returns the runs of uploads of the event's key that had its size, the
// newest first.
func (s *Submitter) earlierUploads(ctx context.Context, e events.ObjectCreated) (out []identity.RunID, err error) {
	var index record.RunIndex
	if _, _, err := host.Load(ctx, s.Docs, record.RunIndexKey, &index); err != nil {
		return nil, err
	}
	if !index.Built {
		return s.earlierInAll(ctx, e)
	}
	for d, err := range document.All(ctx, s.Docs, record.InputPrefix(e.Key)) {
		if err != nil {
			return nil, fault.Wrap(err, "look for earlier runs of %s", e.Key)
		}
		var n record.NamedRun
		if err := record.Decode(d.Value, &n, "document "+d.Key); err != nil {
			s.Log.WarnContext(ctx, "an object is not compared with an earlier run: its entry can't be read", "key", e.Key,
				observe.KeyError, err)
			continue
		}
		if n.Size == e.Size && !slices.Contains(out, n.Run) { // each try of a submission leaves an entry
			out = append(out, n.Run)
		}
		if len(out) == maxEarlier {
			break
		}
	}
	return out, nil
}

// earlierInAll is earlierUploads while the index of runs is not complete.
func (s *Submitter) earlierInAll(ctx context.Context, e events.ObjectCreated) (out []identity.RunID, err error) {
	var all []record.Manifest
	err = readable(host.Each(ctx, s.Docs, record.ManifestPrefix, func(m record.Manifest) error {
		if in, ok := uploadOf(s.opts.Deployment.Bucket, m); ok && in.Key == e.Key && in.Size == e.Size {
			all = append(all, m)
		}
		return nil
	}))
	slices.SortFunc(all, func(a, b record.Manifest) int {
		return cmp.Or(b.CreatedAt.Compare(a.CreatedAt), cmp.Compare(b.Run, a.Run))
	})
	for _, m := range all {
		out = append(out, m.Run)
	}
	return out, err
}

// uploadOf returns the object that a run was made from; ok is false for a run that was not
// made from an upload.
func uploadOf(bucket string, m record.Manifest) (in record.Input, ok bool) {
	if m.InputCount() != 1 || m.Parent != nil {
		return in, false
	}
	in = m.Inputs[0]
	return in, m.Run == identity.UploadRun(bucket, in.Key, in.Version)
}

// found returns the earlier run whose input the object of the event is, though its version
// is another one; ok is false if no run matches.
//
// An object that was there when the bucket's watch began is compared with the runs that were
// made of its key, size and config. One that came back to a key without an object is
// compared with the open runs of its key, which miss it. The input of a run that has expired is
// an ExpiredError.
func (s *Submitter) found(ctx context.Context, e events.ObjectCreated, cfg config.Run) (
	m record.Manifest, ok bool, err error) {
	var runs []identity.RunID
	switch blob.Found(e.Found) {
	case blob.Kept:
		runs, err = s.earlierUploads(ctx, e)
	case blob.Returned:
		runs, err = s.openRuns(ctx)
	}
	if err != nil {
		return m, false, err
	}
	for _, id := range runs {
		m, err := host.LoadManifest(ctx, s.Docs, id)
		var expired *host.ExpiredError
		if errors.As(err, &expired) && s.movedSince(*expired, e) {
			if err := s.noteFound(ctx, id, e); err != nil {
				return m, false, err
			}
			return m, false, expired
		}
		if errors.Is(err, host.ErrNoRun) { // an upload that did not become a run
			continue
		}
		if err != nil {
			return m, false, err
		}
		if in, ok := uploadOf(s.opts.Deployment.Bucket, m); !ok || in.Key != e.Key || in.Size != e.Size {
			continue
		}
		if m.Refused != "" {
			continue
		}
		k, err := s.opts.Kinds.Of(m.Kind)
		if err != nil || e.Found == string(blob.Kept) && !sameConfig(m.Config, k.ManifestConfig(cfg)) {
			continue
		}
		switch same, err := s.sameInput(ctx, m, e); {
		case fault.Is(err, fault.NotFound), s.refuses(err): // the object is gone or unreadable, or the plan is
			s.Log.WarnContext(ctx, "an object can't be compared with an earlier run", observe.KeyRun, m.Run, "key", e.Key,
				observe.KeyError, err)
		case err != nil:
			return m, false, err
		case same:
			return m, true, s.noteFound(ctx, m.Run, e)
		}
	}
	return m, false, nil
}

// openRuns returns the open runs.
func (s *Submitter) openRuns(ctx context.Context) (out []identity.RunID, err error) {
	err = host.Each(ctx, s.Docs, record.OpenRunPrefix, func(o record.OpenRun) error {
		out = append(out, o.Run)
		return nil
	})
	return out, readable(err)
}

// readable returns the error of a list unless it is about documents that cannot be decoded,
// which cannot be earlier runs.
func readable(err error) error {
	if fault.Is(err, fault.Corrupt) || fault.Is(err, fault.Invalid) {
		return nil
	}
	return err
}

// sameConfig reports whether two configs make the same run. Runs of earlier versions have the
// number of items of a shard that was the default then; how an input is cut changes no answer.
func sameConfig(a, b config.Run) bool {
	a.Shard.Items = cmp.Or(a.Shard.Items, shardtable.DefaultItems)
	b.Shard.Items = cmp.Or(b.Shard.Items, shardtable.DefaultItems)
	var read config.Run // as a document has it
	stored, err := json.Marshal(b)
	if err != nil || json.Unmarshal(stored, &read) != nil {
		return false // it has a value that no document holds
	}
	stored, err = json.Marshal(read)
	old, oldErr := json.Marshal(a)
	return err == nil && oldErr == nil && bytes.Equal(old, stored)
}

// sameInput reports whether the object of the event has the bytes of the run's input, as
// far as they are known: of those that were not planned, and of a run whose work files were
// deleted, only the size and what the bucket tells.
func (s *Submitter) sameInput(ctx context.Context, m record.Manifest, e events.ObjectCreated) (bool, error) {
	var p record.Plan
	if _, _, err := host.Load(ctx, s.Docs, record.PlanKey(m.Run), &p); err != nil {
		return false, err
	}
	s.Log.InfoContext(ctx, "compare an object with an earlier run", observe.KeyRun, m.Run, "key", e.Key, "size", e.Size)
	same, planned, err := input.NewInputs(s.Blobs).SameAsPlanned(ctx, m, p, 0, e.Version)
	switch {
	case err != nil || planned:
		return same, err
	case p.Merged == 0:
		return true, nil
	}
	return s.opts.Moved != nil && s.opts.Moved(m.Inputs[0].Version, e.Version), nil
}

// noteFound records that the object of the event is the input of the run.
func (s *Submitter) noteFound(ctx context.Context, id identity.RunID, e events.ObjectCreated) error {
	upload := identity.UploadRun(s.opts.Deployment.Bucket, e.Key, e.Version)
	s.Log.InfoContext(ctx, "an object is the input of an earlier run", observe.KeyRun, id, "key", e.Key)
	_, err := host.Save(ctx, s.Docs, record.FoundKey(upload), record.FoundInput{Schema: record.Schema, Run: id}, "")
	if fault.Is(err, fault.Conflict) {
		return nil
	}
	return fault.Wrap(err, "note that %s is the input of run %s", e.Key, id)
}

// movedSince reports whether the object of the event is the input of a run that has expired, of
// the same key and size, as far as the bucket tells: its bytes and the config are not known any
// more.
func (s *Submitter) movedSince(x host.ExpiredError, e events.ObjectCreated) bool {
	return s.opts.Moved != nil && x.Version != "" && s.opts.Moved(x.Version, e.Version)
}

// refusedBefore reports whether the object of the event was refused for the same reason
// under another version.
func (s *Submitter) refusedBefore(ctx context.Context, m record.Manifest, e events.ObjectCreated) (bool, error) {
	if blob.Found(e.Found) != blob.Kept || m.Refused == "" {
		return false, nil
	}
	runs, err := s.earlierUploads(ctx, e)
	if err != nil {
		return false, err
	}
	for _, id := range runs {
		old, err := host.LoadManifest(ctx, s.Docs, id)
		if errors.Is(err, host.ErrNoRun) {
			continue
		}
		if err != nil {
			return false, err
		}
		if old.Refused == m.Refused {
			return true, s.noteFound(ctx, old.Run, e)
		}
	}
	return false, nil
}
