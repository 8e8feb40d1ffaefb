package trial

import (
	"context"
	"sync"

	"rollout/gpuworker/isolation"
	"rollout/shared/artifact"
	"rollout/shared/blob"
	"rollout/shared/config"
	"rollout/shared/core/identity"
	"rollout/shared/fault"
	"rollout/shared/record"
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

// AgentOf returns the agent of a run's variant, with its artifact.
func (a *Artifacts) AgentOf(ctx context.Context, m record.Manifest, v config.Variant) (Agent, error) {
	agent := agentOf(v)
	for _, frozen := range m.Artifacts {
		if frozen.Variant != v.Name {
			continue
		}
		id, ok := identity.ParseContentID(frozen.Content)
		if !ok {
			return agent, fault.New(fault.Corrupt, "run %s has the invalid artifact %q", m.Run, frozen.Content)
		}
		var err error
		if agent.Artifact, err = a.folder(ctx, id); err != nil {
			return agent, err
		}
	}
	return agent, nil
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
