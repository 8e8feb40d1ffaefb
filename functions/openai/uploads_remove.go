package openai

import (
	"context"

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

// removeParts deletes the parts of an upload that is over. What fails is logged alone: reclaim
// deletes the rest, and all where contents are served by redirect.
func (s *Server) removeParts(ctx context.Context, u record.Upload) {
	if s.redirect != nil {
		return
	}
	prefix := record.UploadPartsPrefix + u.ID + "/"
	for after, more := "", true; more; {
		found, err := s.Blobs.List(ctx, prefix, after, partsPage)
		for _, p := range found {
			if err == nil {
				err = s.Blobs.Delete(ctx, p.Key, "")
			}
			after = p.Key
		}
		if err != nil {
			s.Log.WarnContext(ctx, "can't remove parts of an upload", "prefix", prefix, "error", err)
			return
		}
		more = len(found) == partsPage
	}
}
