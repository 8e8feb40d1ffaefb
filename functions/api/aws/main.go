// Command aws is the API as a function of AWS Lambda behind a function URL,
// which must stream its responses. It demands the token that the secret
// api-token holds.
package main

import (
	"context"

	"github.com/aws/aws-lambda-go/lambdaurl"

	"rollout/functions/api"
	"rollout/functions/internal/lambdafn"
	"rollout/shared/fault"
	"rollout/shared/listen"
	"rollout/shared/observe/vitals"
)

func main() {
	lambdafn.Main("api", func(ctx context.Context, f *lambdafn.Function) (any, error) {
		token, err := f.Secrets.Get(ctx, listen.TokenSecret)
		if err != nil {
			return nil, err
		}
		if token.Reveal() == "" {
			return nil, fault.New(fault.Invalid, "the secret %s is empty: the API would be open to everybody", listen.TokenSecret)
		}
		return lambdaurl.Wrap(api.New(f.Ports, f.Deployment).Handler(token, vitals.Vitals{Ping: f.Docs.Ping})), nil
	})
}
