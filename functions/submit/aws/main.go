// Command aws is submit as a function of AWS Lambda, called for new objects.
package main

import (
	"rollout/functions/internal/lambdafn"
	"rollout/functions/submit"
	"rollout/shared/aws/stack"
)

func main() {
	lambdafn.Main("submit", func(s *stack.Stack) any {
		return lambdafn.Objects(s.Ports, s.Deployment.Cloud.S3, submit.New(s.Ports, s.Deployment).Uploaded)
	})
}
