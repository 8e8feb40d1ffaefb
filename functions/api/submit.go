package api

import (
	"context"
	"fmt"
	"strings"

	"rollout/events"
	"rollout/shared/blob"
	"rollout/shared/core/identity"
	"rollout/shared/fault"
	"rollout/shared/host"
	"rollout/shared/record"
)

// Submission is the answer to a submission: the run that the object is.
type Submission struct {
	Run     identity.RunID `json:"run_id"`
	Key     string         `json:"key"`
	Version string         `json:"version"`
	Size    int64          `json:"size"`
}

// Submit tells submit about an object that is in the bucket, as the store's
// own event would. Announcing it again names the same run.
func (s *Service) Submit(ctx context.Context, key string) (Submission, error) {
	if err := CheckInputKey(key); err != nil {
		return Submission{}, err
	}
	info, err := s.ports.Blobs.Stat(ctx, key, "")
	if fault.Is(err, fault.NotFound) {
		return Submission{}, &fault.Error{Kind: fault.NotFound, Err: fmt.Errorf("there is no object %s in the bucket", key), Remedy: "upload it first"}
	}
	if err != nil {
		return Submission{}, err
	}
	created := events.ObjectCreated{Bucket: s.bucket, Key: key, Version: info.Version, Size: info.Size}
	if err := s.ports.Send(ctx, host.TaskQueue, created); err != nil {
		return Submission{}, err
	}
	return Submission{Run: identity.UploadRun(s.bucket, key, info.Version), Key: key, Version: info.Version, Size: info.Size}, nil
}

// inputSuffixes end the names of objects that are runs' inputs.
var inputSuffixes = [...]string{".jsonl", ".jsonl.gz", ".jsonl.zst"}

// CheckInputKey refuses, as Invalid, the key of an object that would not
// become a run: outside prompts/, hidden, or not JSON lines by its name.
func CheckInputKey(key string) error {
	if err := blob.CheckKey(key); err != nil {
		return err
	}
	name, ok := strings.CutPrefix(key, record.PromptsPrefix)
	if !ok {
		return &fault.Error{Kind: fault.Invalid, Err: fmt.Errorf("object %q is not under %s", key, record.PromptsPrefix), Remedy: "only objects there become runs"}
	}
	for _, suffix := range inputSuffixes {
		if stem, ok := strings.CutSuffix(name, suffix); ok && stem != "" && !strings.HasSuffix(stem, "/") {
			return nil
		}
	}
	return &fault.Error{Kind: fault.Invalid, Err: fmt.Errorf("object %q is no prompts file by its name", key),
		Remedy: "end its name in .jsonl, .jsonl.gz or .jsonl.zst"}
}
