// Command api is the packages api and openai as a function of AWS Lambda behind a function
// URL, which must stream its responses. If the config allows the secret api-token,
// requests must carry that token. Otherwise the URL must require AWS signatures,
// and requests without one are refused here, too. What exceeds the service's buckets is
// refused: the function reserves no concurrency, of which a new account has none to spare.
package main

import (
	"net/http"
	"slices"

	"github.com/aws/aws-lambda-go/lambdaurl"

	"rollout/functions/api"
	"rollout/functions/aws/internal/lambda"
	"rollout/functions/openai"
	"rollout/shared/aws"
	"rollout/shared/listen"
	"rollout/shared/observe/probes"
)

func main() {
	lambda.Main("api", func(s *aws.Stack) any {
		service := api.New(s.Ports, s.Deployment, aws.Provider{}.Profile(s.Deployment)).Throttled()
		batches := openai.New(s.Ports, s.Deployment, service).Redirecting(s.Bucket.SignGet).Mount()
		v := probes.Probes{Ping: s.Ports.Docs.Ping}
		if !slices.Contains(s.Deployment.Secrets, listen.TokenSecret) {
			return lambdaurl.Wrap(service.AuthenticatedHandler(signed, v, batches))
		}
		return lambdaurl.Wrap(service.TokenHandler(s.Secrets, s.Ports.Log, v, batches))
	})
}

// signed reports whether AWS has checked the request's signature.
func signed(r *http.Request) bool {
	event, ok := lambdaurl.RequestFromContext(r.Context())
	return ok && event.RequestContext.Authorizer != nil && event.RequestContext.Authorizer.IAM != nil
}
