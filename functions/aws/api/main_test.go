package main

import (
	"io"
	"net/http"
	"testing"

	lambdaevents "github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-lambda-go/lambdaurl"

	"rollout/functions/api"
	"rollout/shared/cloud"
	"rollout/shared/config"
	"rollout/shared/host/hosttest"
	"rollout/shared/observe/probes"
)

func service() (*api.Service, probes.Probes) {
	p := hosttest.New()
	return api.New(p, config.DefaultDeployment(), cloud.OneMachine()), probes.Probes{Ping: p.Docs.Ping}
}

// Without a token, only requests whose signature AWS has checked are answered.
func TestWithoutATokenOnlySignedRequestsAreAnswered(t *testing.T) {
	t.Parallel()
	s, v := service()
	handler := lambdaurl.Wrap(s.AuthenticatedHandler(signed, v))
	type authorizer = lambdaevents.LambdaFunctionURLRequestContextAuthorizerDescription
	iam := &lambdaevents.LambdaFunctionURLRequestContextAuthorizerIAMDescription{AccountID: "000000000000"}
	for name, c := range map[string]struct {
		authorizer *authorizer
		want       int
	}{
		"signed":                      {&authorizer{IAM: iam}, http.StatusOK},
		"not signed":                  {nil, http.StatusForbidden},
		"authorizer without identity": {&authorizer{}, http.StatusForbidden},
	} {
		out, err := handler(t.Context(), &lambdaevents.LambdaFunctionURLRequest{
			RawPath: "/v1/runs", Headers: map[string]string{"host": "localhost"},
			RequestContext: lambdaevents.LambdaFunctionURLRequestContext{
				Authorizer: c.authorizer,
				HTTP:       lambdaevents.LambdaFunctionURLRequestContextHTTPDescription{Method: "GET", Path: "/v1/runs"},
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadAll(out.Body); err != nil || out.StatusCode != c.want {
			t.Errorf("%s: %d, %v", name, out.StatusCode, err)
		}
	}
}
