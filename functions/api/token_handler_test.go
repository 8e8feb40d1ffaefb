package api

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"rollout/shared/cloud"
	"rollout/shared/config"
	"rollout/shared/fault"
	"rollout/shared/host/hosttest"
	"rollout/shared/observe/probes"
	"rollout/shared/secret"
)

// secrets returns the results of its functions, one for each call.
type secrets []func() (secret.Value, error)

func (s *secrets) Get(context.Context, string) (secret.Value, error) {
	f := (*s)[0]
	*s = (*s)[1:]
	return f()
}

func TestRequestsAreRefusedUntilTheTokenCanBeRead(t *testing.T) {
	t.Parallel()
	p := hosttest.New()
	service, v := New(p, config.DefaultDeployment(), cloud.OneMachine()), probes.Probes{Ping: p.Docs.Ping}
	answers := &secrets{
		func() (secret.Value, error) { return secret.Value{}, fault.New(fault.Throttled, "slow down") },
		func() (secret.Value, error) { return secret.NewValue(""), nil },
		func() (secret.Value, error) { return secret.NewValue("s3cret"), nil }, // read once
	}
	handler := service.TokenHandler(answers, slog.New(slog.DiscardHandler), v)
	const url = "https://api.example/v1/runs"
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
