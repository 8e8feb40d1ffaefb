package lambda

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/aws/aws-lambda-go/lambda"

	"rollout/shared/aws"
	"rollout/shared/cloud"
	"rollout/shared/config"
	"rollout/shared/fault"
	"rollout/shared/observe"
)

// ConfigVariable is the environment variable that holds the deployment's config,
// as TOML. A deployment sets no other variable.
const ConfigVariable = "ROLLOUT_CONFIG"

// Open reads the environment with lookup, normally os.Getenv, and opens the stack.
// It sends no request, so that a cold start waits for no service. All problems of
// the environment are returned together, as Invalid.
func Open(ctx context.Context, name string, lookup func(string) string) (*aws.Stack, error) {
	s, err := open(ctx, name, lookup(ConfigVariable))
	if fault.Is(err, fault.Invalid) {
		return nil, &fault.Error{Kind: fault.Invalid, Op: "open the function " + name, Err: err,
			Remedy: "deploy the stack again"}
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

// margin is how long before the end of its time a function must return: long
// enough to cancel requests and to report.
const margin = 2 * time.Second

// withMargin returns a context that ends margin before Lambda ends the function,
// or after three quarters of a shorter time.
func withMargin(ctx context.Context) (context.Context, context.CancelFunc) {
	deadline, ok := ctx.Deadline()
	if !ok {
		return context.WithCancel(ctx)
	}
	left := time.Until(deadline)
	return context.WithDeadline(ctx, deadline.Add(-min(margin, left/4)))
}

// Main is the main of a function: it opens the stack, and lets Lambda call the
// handler that wire returns, until Lambda ends the process. The handler has a form
// that the package lambda of AWS accepts.
func Main(name string, wire func(*aws.Stack) (handler any)) {
	ctx := context.Background()
	s, err := Open(ctx, name, os.Getenv)
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
		os.Exit(1)
	}
	lambda.StartWithOptions(wire(s), lambda.WithContext(ctx))
}
