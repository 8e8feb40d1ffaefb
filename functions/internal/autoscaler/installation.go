package autoscaler

import (
	"time"

	"rollout/shared/cloud"
	"rollout/shared/core/scaling"
)

// ForInstallation returns the scaler of an installation in a cloud; see New. It
// asks no service yet.
func ForInstallation(in cloud.Installation, cooldown time.Duration) *Scaler {
	s := in.Stores()
	fleet := s.Deployment.Cloud.Fleet
	rules := scaling.Rules{ShardsPerMachine: fleet.ShardsPerMachine, MaxMachines: fleet.MaxMachines}
	return New(in.Fleet(), rules, cooldown, s.Ports.Clock, s.Ports.Log)
}
