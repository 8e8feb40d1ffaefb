package main

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	lambdaevents "github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-lambda-go/lambdaurl"

	"rollout/functions/api"
	"rollout/shared/cloud"
	"rollout/shared/config"
	"rollout/shared/fault"
	"rollout/shared/host/hosttest"
	"rollout/shared/observe/probes"
	"rollout/shared/secret"
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

// secrets returns the results of its functions, one for each call.
type secrets []func() (secret.Value, error)

func (s *secrets) Get(context.Context, string) (secret.Value, error) {
	f := (*s)[0]
	*s = (*s)[1:]
	return f()
}

func TestRequestsAreRefusedUntilTheTokenCanBeRead(t *testing.T) {
	t.Parallel()
	service, v := service()
	answers := &secrets{
		func() (secret.Value, error) { return secret.Value{}, fault.New(fault.Throttled, "slow down") },
		func() (secret.Value, error) { return secret.NewValue(""), nil },
		func() (secret.Value, error) { return secret.NewValue("s3cret"), nil }, // read once
	}
	handler := &tokenHandler{secrets: answers, log: slog.New(slog.DiscardHandler), service: service, probes: v}
	const url = "https://x.lambda-url.us-east-1.on.aws/v1/runs"
	for _, want := range []int{
		http.StatusServiceUnavailable, http.StatusServiceUnavailable, http.StatusOK, http.StatusOK,
	} {
		r := httptest.NewRequestWithContext(t.Context(), "GET", url, strings.NewReader(""))
		r.Header.Set("Authorization", "Bearer s3cret")
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		if w.Code != want {
			t.Errorf("answered %d, want %d", w.Code, want)
		}
	}
}
