// Command aws is submit as a function of AWS Lambda, called for new objects.
package main

import (
	"context"

	"rollout/functions/internal/lambdafn"
	"rollout/functions/submit"
)

func main() {
	lambdafn.Main("submit", func(_ context.Context, f *lambdafn.Function) (any, error) {
		return lambdafn.Objects(f.Ports, submit.New(f.Ports, f.Deployment).Uploaded), nil
	})
}
