// Command submit is package submit as a function of AWS Lambda, called for new objects
// and for retries of runs.
package main

import (
	"rollout/functions/aws/internal/lambda"
	"rollout/functions/submit"
	"rollout/shared/aws"
)

func main() {
	lambda.Main("submit", func(s *aws.Stack) any {
		at := aws.Provider{}.Profile(s.Deployment).Capabilities
		sub := submit.New(s.Ports, submit.Options{Deployment: s.Deployment, At: at})
		return lambda.Objects(s.Ports, s.Deployment.Cloud.S3, sub.Uploaded, sub.Retry)
	})
}
