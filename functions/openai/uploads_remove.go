package openai

import (
	"context"

	"rollout/shared/blob"
	"rollout/shared/host"
	"rollout/shared/record"
)

// partsPage is how many parts are listed at once.
const partsPage = 1000

// removeJoined deletes the object that a claim of the upload has made, unless it is a file.
func (s *Server) removeJoined(ctx context.Context, u record.Upload) error {
	if u.Joining == "" {
		return nil
	}
	var f record.File
	_, found, err := host.Load(ctx, s.Docs, record.FileKey(u.File.ID), &f)
	if err != nil || found && f.Input.Key == u.File.Input.Key {
		return err
	}
	return s.Blobs.Delete(ctx, u.File.Input.Key, "")
}

// removeParts deletes the parts of an upload that is over.
func (s *Server) removeParts(ctx context.Context, u record.Upload) {
	s.deleteParts(ctx, record.UploadPartsPrefix+u.ID+"/", func(blob.Info) bool { return true })
}

// removeAbandoned deletes parts of uploads that have expired.
func (s *Server) removeAbandoned(ctx context.Context) {
	s.deleteParts(ctx, record.UploadPartsPrefix, func(p blob.Info) bool {
		return s.Clock.Now().Sub(p.ModTime) >= 2*uploadLasts
	})
}

// deleteParts deletes the parts under a prefix that are old. What fails is logged alone: a later
// upload removes the rest. In a cloud the lifecycle of the bucket does.
func (s *Server) deleteParts(ctx context.Context, prefix string, old func(blob.Info) bool) {
	if s.redirect != nil {
		return
	}
	for after, more := "", true; more; {
		found, err := s.Blobs.List(ctx, prefix, after, partsPage)
		for _, p := range found {
			if err == nil && old(p) {
				err = s.Blobs.Delete(ctx, p.Key, "")
			}
			after = p.Key
		}
		if err != nil {
			s.Log.WarnContext(ctx, "can't remove parts of uploads", "prefix", prefix, "error", err)
			return
		}
		more = len(found) == partsPage
	}
}
