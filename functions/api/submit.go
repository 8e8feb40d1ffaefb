package api

import (
	"context"
	"fmt"
	"rollout/shared/input"

	"rollout/events"
	"rollout/shared/core/identity"
	"rollout/shared/fault"
	"rollout/shared/host"
)

// Submission names the run that a submitted object becomes.
type Submission struct {
	Run     identity.RunID `json:"run_id"`
	Key     string         `json:"key"`
	Version string         `json:"version"`
	Size    int64          `json:"size"`
}

// Submit sends the event of an object that is in the bucket, as the store itself
// does for an upload. Submitting the object again names the same run. An object
// that is not there is NotFound, one whose run has expired is Conflict; a key that cannot become
// a run is Invalid.
func (s *Service) Submit(ctx context.Context, key string) (Submission, error) {
	if err := input.CheckPromptsKey(key); err != nil {
		return Submission{}, err
	}
	info, err := s.ports.Blobs.Stat(ctx, key, "")
	if fault.Is(err, fault.NotFound) {
		return Submission{}, &fault.Error{Kind: fault.NotFound, Remedy: "upload it first",
			Err: fmt.Errorf("there is no object %s in the bucket", key)}
	}
	if err != nil {
		return Submission{}, err
	}
	id := identity.UploadRun(s.bucket, key, info.Version)
	m, err := host.LoadUpload(ctx, s.ports.Docs, id)
	switch {
	case err == nil:
		id = m.Run
	case host.IsExpired(err):
		return Submission{}, &fault.Error{Kind: fault.Conflict, Err: err, Remedy: "upload " + key + " again to run it again"}
	case !fault.Is(err, fault.NotFound):
		return Submission{}, err
	}
	created := events.ObjectCreated{Bucket: s.bucket, Key: key, Version: info.Version, Size: info.Size}
	if err := s.ports.Send(ctx, host.TaskQueue, created); err != nil {
		return Submission{}, err
	}
	return Submission{Run: id, Key: key, Version: info.Version, Size: info.Size}, nil
}
