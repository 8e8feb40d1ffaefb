package main

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"rollout/functions/gcp/internal/cloudrun"
	"rollout/shared/fault"
)

// environment returns a lookup of variables.
func environment(variables map[string]string) func(string) string {
	return func(name string) string { return variables[name] }
}

const deployment = `schema_version = 1
[cloud]
provider = "gcp"
project = "acme-ml"
region = "us-central1"
gcs.bucket = "acme-rollout"
`

func TestServeNamesWhatIsWrongWithItsEnvironment(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		variables map[string]string
		want      string
	}{
		"no function": {nil,
			`FUNCTION_TARGET is "", which is not a function (set it to one of api, coordinate, finalize, ` +
				`interrupt, leave, plan, reclaim, submit)`},
		"no config": {map[string]string{"FUNCTION_TARGET": "plan"},
			"open the function plan: ROLLOUT_CONFIG is not set (deploy the installation again)"},
		"another cloud's config": {map[string]string{"FUNCTION_TARGET": "plan", "ROLLOUT_CONFIG": "schema_version = 1"},
			"open the function plan: the config describes no installation on Google Cloud"},
	} {
		err := serve(t.Context(), environment(c.variables))
		if !fault.Is(err, fault.Invalid) || !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("%s: %v, want %s", name, err, c.want)
		}
	}
}

// Every function opens without a service at hand, and refuses a caller without an
// identity.
func TestEveryFunctionRefusesStrangers(t *testing.T) {
	t.Parallel()
	for name, wire := range programs() {
		ctx, cancel := context.WithCancel(t.Context())
		s, err := cloudrun.Open(ctx, name, environment(map[string]string{"ROLLOUT_CONFIG": deployment}))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		r := httptest.NewRequest(http.MethodPost, "http://localhost/v1/runs", strings.NewReader("{}"))
		w := httptest.NewRecorder()
		wire(ctx, s).ServeHTTP(w, r)
		if w.Code != http.StatusForbidden {
			t.Errorf("%s: answered %d, want 403", name, w.Code)
		}
		cancel()
	}
}
