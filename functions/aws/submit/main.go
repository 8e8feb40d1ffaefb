// Command submit is package submit as a function of AWS Lambda, called for new objects,
// for batches of the API and for retries of runs. It refuses the objects of a bucket that another installation
// owns.
package main

import (
	"context"

	"rollout/events"
	"rollout/functions/aws/internal/lambda"
	"rollout/functions/submit"
	"rollout/shared/aws"
	"rollout/shared/ownership"
)

func main() {
	lambda.Main("submit", func(s *aws.Stack) any {
		at := aws.Provider{}.Profile(s.Deployment).Capabilities
		sub := submit.New(s.Ports, submit.Options{Deployment: s.Deployment, At: at})
		claim := ownership.OfCloud(s).ClaimOnce()
		uploaded := func(ctx context.Context, e events.ObjectCreated) error {
			if err := claim(ctx); err != nil {
				return err
			}
			return sub.Uploaded(ctx, e)
		}
		return lambda.Objects(s.Ports, s.Deployment.Cloud.S3, uploaded, sub.Retry, sub.Batch)
	})
}
