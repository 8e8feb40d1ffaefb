// Command interrupt is the function interrupt on AWS Lambda. EventBridge calls it
// with what EC2 and Auto Scaling say of instances.
package main

import (
	"rollout/functions/aws/internal/lambda"
	"rollout/functions/interrupt"
	"rollout/shared/aws"
	"rollout/shared/host"
)

func main() {
	lambda.Main(host.InterruptFunction, func(s *aws.Stack) any {
		fleet := aws.NewFleet(s.AWS, s.Deployment.Cloud.FleetName, aws.FleetOptions{})
		i := interrupt.New(s.Ports, interrupt.Options{
			Deployment: s.Deployment,
			Hints:      aws.Provider{}.Profile(s.Deployment).Hints,
			ProblemOf:  aws.LaunchProblem,
			FleetOf:    fleet.AutoScalingGroupOf,
		})
		return lambda.Notices(s.Ports, i.Handle)
	})
}
