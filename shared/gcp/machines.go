package gcp

import (
	"log/slog"
	"net/http"

	"rollout/shared/capacity"
	"rollout/shared/cloud"
)

var _ cloud.Installation = (*Stack)(nil)

// Machine returns the machine that the process runs on: an instance of Compute Engine, or
// a task of a Cloud Run job; see cloud.Installation.
func (s *Stack) Machine(local capacity.Source, log *slog.Logger) (capacity.Source, capacity.Membership) {
	if task, ok := taskOf(local); ok {
		return task, task
	}
	instance := NewInstance(local, InstanceOptions{Logger: log})
	return instance, &membership{instance, LeaveAudience(s.Deployment.Cloud), http.DefaultClient}
}
