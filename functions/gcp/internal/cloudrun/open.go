package cloudrun

import (
	"context"
	"log/slog"
	"net/http"
	"os"
	"strings"

	"rollout/shared/cloud"
	"rollout/shared/config"
	"rollout/shared/fault"
	"rollout/shared/gcp"
	"rollout/shared/observe"
)

// ConfigVariable is the environment variable that holds the deployment's config, as
// TOML.
const ConfigVariable = "ROLLOUT_CONFIG"

// Open opens the installation for a function, with the config in the environment,
// which it reads with lookup. It sends no request, so that a cold start waits for no
// service. All problems of the config are returned together, as Invalid.
func Open(ctx context.Context, function string, lookup func(string) string) (*gcp.Stack, error) {
	s, err := open(ctx, function, lookup(ConfigVariable))
	if fault.Is(err, fault.Invalid) {
		return nil, &fault.Error{Kind: fault.Invalid, Op: "open the function " + function, Err: err,
			Remedy: "deploy the installation again"}
	}
	return s, err
}

func open(ctx context.Context, function, toml string) (*gcp.Stack, error) {
	if strings.TrimSpace(toml) == "" {
		return nil, fault.New(fault.Invalid, "%s is not set", ConfigVariable)
	}
	d, err := config.ParseDeployment(ConfigVariable, []byte(toml))
	if err != nil {
		return nil, err
	}
	log := observe.NewLogger(os.Stderr, observe.JSON, slog.LevelInfo).With("function", function)
	return gcp.OpenStack(ctx, d, gcp.StackOptions{Options: cloud.Options{Source: function, Log: log}})
}

// IsAuthenticated reports whether a request has an identity token. Cloud Run has
// checked it, if the service demands the role of an invoker.
func IsAuthenticated(r *http.Request) bool {
	_, err := callerOf(r)
	return err == nil
}
