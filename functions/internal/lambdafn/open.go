package lambdafn

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"strings"
	"time"

	"rollout/shared/aws"
	"rollout/shared/clock"
	"rollout/shared/config"
	"rollout/shared/document"
	"rollout/shared/fault"
	"rollout/shared/host"
	"rollout/shared/observe"
	"rollout/shared/queue"
	"rollout/shared/retry"
	"rollout/shared/secret"
)

// Variables of a function's environment, all of which a deployment sets.
const (
	BucketVariable = "ROLLOUT_BUCKET" // the bucket's name
	TableVariable  = "ROLLOUT_TABLE"  // the table of the documents
	QueuesVariable = "ROLLOUT_QUEUES" // what the queues' names begin with, such as "rollout-"
	ConfigVariable = "ROLLOUT_CONFIG" // the deployment's config, as TOML
)

// Function is what a function works with.
type Function struct {
	host.Ports
	Deployment config.Deployment
	Secrets    secret.Store
}

// secretPrefix begins the names of secrets in Secrets Manager.
const secretPrefix = "rollout/"

// Open reads the environment with lookup, which is os.Getenv, and opens the
// drivers. It asks no service for anything: a cold start waits for none. What
// is wrong with the environment is told all at once, as Invalid.
func Open(ctx context.Context, name string, lookup func(string) string) (*Function, error) {
	var problems []error
	set := map[string]string{}
	for _, variable := range []string{BucketVariable, TableVariable, QueuesVariable, ConfigVariable} {
		if set[variable] = lookup(variable); strings.TrimSpace(set[variable]) == "" {
			problems = append(problems, errors.New(variable+" is not set"))
		}
	}
	deployment, err := config.ParseDeployment(ConfigVariable, []byte(set[ConfigVariable]))
	if err != nil && set[ConfigVariable] != "" {
		problems = append(problems, err)
	}
	if len(problems) > 0 {
		return nil, &fault.Error{Kind: fault.Invalid, Op: "open the function " + name, Err: errors.Join(problems...), Remedy: "deploy the stack again"}
	}
	deployment.Bucket = set[BucketVariable]
	log := slog.New(slog.NewJSONHandler(os.Stderr, nil)).With("function", name)
	cfg, err := aws.Config(ctx, log)
	if err != nil {
		return nil, err
	}
	return &Function{
		Ports: host.Ports{
			Blobs:  aws.NewBucket(cfg, set[BucketVariable], aws.BucketOptions{}),
			Docs:   document.Reliable(aws.NewDocuments(cfg, set[TableVariable], aws.DocumentOptions{Listed: aws.Listed()}), retry.Policy{}),
			Queues: queue.Reliable(aws.NewQueues(cfg, aws.QueueOptions{Prefix: set[QueuesVariable]}), retry.Policy{}),
			Clock:  clock.System{}, Log: log, Source: name,
		},
		Deployment: deployment,
		Secrets:    aws.NewSecrets(cfg, deployment.Secrets, aws.SecretOptions{Prefix: secretPrefix}),
	}, nil
}

// margin is how long before its time is up a function hands back: long enough
// to say so, and to end the requests that are under way.
const margin = 2 * time.Second

// early ends a function's context before Lambda ends the function.
func early(ctx context.Context) (context.Context, context.CancelFunc) {
	deadline, ok := ctx.Deadline()
	if !ok {
		return context.WithCancel(ctx)
	}
	left := time.Until(deadline)
	return context.WithDeadline(ctx, deadline.Add(-min(margin, left/4)))
}

// failed logs what a function could not do; Lambda repeats it.
func failed(ctx context.Context, log *slog.Logger, what string, err error) {
	log.ErrorContext(ctx, what, observe.KeyError, err)
}
