package trial

import (
	"context"
	"sync"

	"rollout/gpuworker/isolation"
	"rollout/shared/artifact"
	"rollout/shared/blob"
	"rollout/shared/core/identity"
)

// Artifacts are the files of agents on this machine, each artifact in a folder that is named by
// its content. It is safe for concurrent use. Close it.
type Artifacts struct {
	Sandbox *isolation.Sandbox
	Blobs   blob.Store

	mu      sync.Mutex // held while one is unpacked
	at      string     // their folder; "" before the first
	release func() error
}

// folder returns the folder of an artifact, which is fetched and verified once.
func (a *Artifacts) folder(ctx context.Context, id identity.ContentID) (string, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.at == "" {
		var err error
		if a.at, a.release, err = a.Sandbox.Scratch(); err != nil {
			return "", err
		}
	}
	return artifact.Unpack(ctx, a.Blobs, id, a.at)
}

// Close removes the files.
func (a *Artifacts) Close() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.at == "" {
		return nil
	}
	a.at = ""
	return a.release()
}
