package lambda

import (
	"context"
	"log/slog"
	"os"
	"strings"
	"time"

	"rollout/shared/aws"
	"rollout/shared/cloud"
	"rollout/shared/config"
	"rollout/shared/fault"
	"rollout/shared/observe"
)

// ConfigVariable is the one variable of a function's environment that a
// deployment sets: the deployment's config, as TOML.
const ConfigVariable = "ROLLOUT_CONFIG"

// Open reads the environment with lookup, which is os.Getenv, and opens the
// stack. It asks no service for anything: a cold start waits for none. What is
// wrong with the environment is told all at once, as Invalid.
func Open(ctx context.Context, name string, lookup func(string) string) (*aws.Stack, error) {
	s, err := open(ctx, name, lookup(ConfigVariable))
	if fault.Is(err, fault.Invalid) {
		return nil, &fault.Error{Kind: fault.Invalid, Op: "open the function " + name, Err: err, Remedy: "deploy the stack again"}
	}
	return s, err
}

func open(ctx context.Context, name, toml string) (*aws.Stack, error) {
	if strings.TrimSpace(toml) == "" {
		return nil, fault.New(fault.Invalid, "%s is not set", ConfigVariable)
	}
	d, err := config.ParseDeployment(ConfigVariable, []byte(toml))
	if err != nil {
		return nil, err
	}
	log := observe.NewLogger(os.Stderr, observe.JSON, slog.LevelInfo).With("function", name)
	return aws.OpenStack(ctx, d, aws.StackOptions{Options: cloud.Options{Source: name, Log: log}})
}

// margin is how long before its time is up a function hands back: long enough
// to say so, and to end the requests that are under way.
const margin = 2 * time.Second

// withMargin ends a function's context before Lambda ends the function.
func withMargin(ctx context.Context) (context.Context, context.CancelFunc) {
	deadline, ok := ctx.Deadline()
	if !ok {
		return context.WithCancel(ctx)
	}
	left := time.Until(deadline)
	return context.WithDeadline(ctx, deadline.Add(-min(margin, left/4)))
}
