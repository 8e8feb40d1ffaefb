package fleet

import (
	"time"

	"rollout/shared/aws"
	"rollout/shared/aws/stack"
	"rollout/shared/engine/fleet"
)

// Of is the raiser of a stack on AWS; see New. It asks for nothing yet.
func Of(s *stack.Stack, again time.Duration) *Raiser {
	c := s.Deployment.Cloud
	rules := fleet.Rules{ShardsPerMachine: c.Fleet.ShardsPerMachine, MaxMachines: c.Fleet.MaxMachines}
	return New(aws.NewFleet(s.AWS, c.FleetOf, aws.FleetOptions{}), rules, again, s.Ports.Clock, s.Ports.Log)
}
