package autoscaler

import (
	"time"

	"rollout/shared/aws"
	"rollout/shared/aws/stack"
	"rollout/shared/core/scaling"
)

// NewAWS is the raiser of a stack on AWS; see New. It asks for nothing yet.
func NewAWS(s *stack.Stack, again time.Duration) *Scaler {
	c := s.Deployment.Cloud
	rules := scaling.Rules{ShardsPerMachine: c.Fleet.ShardsPerMachine, MaxMachines: c.Fleet.MaxMachines}
	return New(aws.NewFleet(s.AWS, c.FleetName, aws.FleetOptions{}), rules, again, s.Ports.Clock, s.Ports.Log)
}
