package reclaim

import (
	"context"
	"slices"
	"time"

	"rollout/events"
	"rollout/shared/blob"
	"rollout/shared/core/identity"
	"rollout/shared/document"
	"rollout/shared/fault"
	"rollout/shared/host"
	"rollout/shared/input"
	"rollout/shared/record"
)

// UploadOptions say in which bucket ScanUploads looks.
type UploadOptions struct {
	Bucket string // the deployment's name of the bucket, of which run ids are made
	// Recent limits the scan to what was uploaded in the last week, and since the
	// installation exists: a cloud's bucket may be older, and its files then were never
	// meant to be runs. In a folder, every prompts file is to be a run, and its time says
	// little: a copied file keeps the original's.
	Recent bool
	// Found is what the events say of the objects: whether they may be earlier ones under a
	// new version.
	Found blob.Found
	// CheckOwner is optional. It returns an error if the bucket is another installation's.
	CheckOwner func(context.Context) error
}

// UploadScanInterval is how often ScanUploads is to be called.
const UploadScanInterval = time.Hour

// Limits of a scan for uploads.
const (
	minScanInterval = 55 * time.Minute // a second call within it does nothing
	maxUploadPages  = 20               // read by a scan; the next one goes on behind them
	uploadPage      = 1000             // objects of a page
	maxResent       = 1000             // events sent by a scan
	minUploadAge    = 15 * time.Minute // the event may be on its way until then
	maxUploadAge    = 7 * 24 * time.Hour
	// deployTime is how long before its first scan an installation may have begun.
	deployTime = 2 * time.Hour
)

// ScanUploads finds prompts files without a run, because the event of their upload was
// lost or ended as a dead letter, and sends the event again, as the bucket would. It looks
// at files as they are: one that was deleted or replaced gets no run. Call it every
// UploadScanInterval.
//
//	document uploads/scan: first scan, latest scan, cursor ─▶ at most 20 pages of prompts/ behind the cursor
//	  ─▶ files that may be runs ─▶ those without a manifest ─▶ ObjectCreated ─▶ submit
//
// Of concurrent calls one scans. A scan that fails goes on where it was an interval
// later, so that no event is sent twice within one.
func ScanUploads(ctx context.Context, p host.Ports, o UploadOptions) error {
	if o.CheckOwner != nil {
		if err := o.CheckOwner(ctx); err != nil {
			return err
		}
	}
	s := uploadScan{Ports: p.WithSource("reclaim"), opts: o, now: p.Clock.Now().UTC()}
	begun, err := s.begin(ctx)
	for range maxUploadPages {
		if err != nil || !begun {
			break
		}
		begun, err = s.page(ctx)
	}
	return fault.Wrap(err, "look for uploads without a run")
}

// uploadScan is one scan.
type uploadScan struct {
	host.Ports
	opts     UploadOptions
	now      time.Time
	doc      record.UploadScan
	revision document.Revision
	sent     int // events
}

// begin notes that a scan begins. It returns false if another one began within the
// interval.
func (s *uploadScan) begin(ctx context.Context) (begun bool, err error) {
	rev, found, err := host.Load(ctx, s.Docs, record.UploadScanKey, &s.doc)
	if err != nil || found && apart(s.doc.At, s.now) < minScanInterval {
		return false, err
	}
	if !found {
		s.doc.Since = s.now
	}
	s.revision = rev
	s.doc.At = s.now
	return s.save(ctx)
}

// save saves how far the scan is. It returns false if another scan was faster.
func (s *uploadScan) save(ctx context.Context) (saved bool, err error) {
	s.doc.Schema = record.Schema
	rev, err := host.Save(ctx, s.Docs, record.UploadScanKey, s.doc, s.revision)
	if fault.Is(err, fault.Conflict) {
		return false, nil
	}
	s.revision = rev
	return err == nil, err
}

// page looks at the next page of objects, and sends the events of those without a run.
// It returns false at the end of the scan.
func (s *uploadScan) page(ctx context.Context) (more bool, err error) {
	infos, err := s.Blobs.List(ctx, record.PromptsPrefix, s.doc.After, uploadPage)
	if err != nil {
		return false, err
	}
	after := ""
	if len(infos) == uploadPage {
		after = infos[len(infos)-1].Key
	}
	lost, err := s.withoutRun(ctx, infos)
	if err != nil {
		return false, err
	}
	if room := maxResent - s.sent; len(lost) > room {
		lost = lost[:room]
		after = lost[room-1].Key // the next scan goes on here
	}
	if err := s.resend(ctx, lost); err != nil {
		return false, err
	}
	s.sent += len(lost)
	more = after != "" && s.sent < maxResent
	if after == s.doc.After {
		return more, nil
	}
	s.doc.After = after
	saved, err := s.save(ctx)
	return more && saved, err
}

// withoutRun returns the objects that should have a run and lack it.
func (s *uploadScan) withoutRun(ctx context.Context, infos []blob.Info) (lost []blob.Info, err error) {
	infos = slices.DeleteFunc(infos, func(i blob.Info) bool { return !s.shouldBeRun(i) })
	lost, err = s.without(ctx, infos, record.ManifestKey)
	if err != nil {
		return nil, err
	}
	lost, err = s.without(ctx, lost, record.FoundKey) // the run may have another version of the input
	return slices.DeleteFunc(lost, func(i blob.Info) bool { return s.unsettled(ctx, i.Key) }), err
}

// unsettled reports whether a program still writes the object. Its event comes later.
func (s *uploadScan) unsettled(ctx context.Context, key string) bool {
	settler, ok := s.Blobs.(blob.Settler)
	if !ok {
		return false
	}
	why, err := settler.Unsettled(ctx, key)
	return err == nil && why != ""
}

// without returns the objects that have no document with the key of their upload.
func (s *uploadScan) without(ctx context.Context, infos []blob.Info, key func(identity.RunID) string) (
	out []blob.Info, err error) {
	for page := range slices.Chunk(infos, document.MaxKeys) {
		keys := make([]string, len(page))
		for i, info := range page {
			keys[i] = key(identity.UploadRun(s.opts.Bucket, info.Key, info.Version))
		}
		docs, err := s.Docs.GetMany(ctx, keys)
		if err != nil {
			return nil, err
		}
		for i, d := range docs {
			if d.Revision == "" {
				out = append(out, page[i])
			}
		}
	}
	return out, nil
}

// shouldBeRun reports whether an object should have become a run by now.
func (s *uploadScan) shouldBeRun(i blob.Info) bool {
	if !input.IsPromptsKey(i.Key) || s.now.Sub(i.ModTime) < minUploadAge {
		return false
	}
	return !s.opts.Recent ||
		s.now.Sub(i.ModTime) <= maxUploadAge && !i.ModTime.Before(s.doc.Since.Add(-deployTime))
}

// resend sends the events of the objects.
func (s *uploadScan) resend(ctx context.Context, lost []blob.Info) error {
	created := make([]events.Payload, len(lost))
	for i, info := range lost {
		created[i] = events.ObjectCreated{Bucket: s.opts.Bucket, Key: info.Key, Version: info.Version, Size: info.Size,
			Found: string(s.opts.Found)}
	}
	if err := s.Send(ctx, host.TaskQueue, created...); err != nil {
		return err
	}
	for _, info := range lost {
		s.Log.WarnContext(ctx, "an upload has not become a run: its event was lost or is a dead letter, and is sent again",
			"key", info.Key, "version", info.Version)
	}
	return nil
}
