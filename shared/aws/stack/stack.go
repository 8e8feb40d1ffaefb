// Package stack opens an installation that was deployed to AWS: the bucket, the
// table, the queues and the secrets that its config names.
//
// What shared/embedded/local is to a laptop's folder this is to a deployed
// stack: it wires the drivers to the ports, and decides nothing. Opening it
// asks no service for anything, so that it costs a cold start no round trip and
// tells nothing about whether the stack is there. It makes nothing that a
// deployment has to make.
package stack

import (
	"context"
	"log/slog"
	"slices"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	awsconfig "github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/smithy-go/middleware"

	"rollout/shared/aws"
	"rollout/shared/blob"
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

// Stack is an open installation.
type Stack struct {
	Deployment config.Deployment
	Ports      host.Ports // with retries
	Bucket     *aws.Bucket
	Secrets    secret.Store
	AWS        awssdk.Config // for drivers that not everybody needs
}

// StackOptions say how to open; the zero value is a command's.
type StackOptions struct {
	Source string       // who sends; "cli" if empty
	Log    *slog.Logger // nil logs nothing
	Clock  clock.Clock  // nil is the machine's
	// UseServiceClock tells the time by the services' answers: the clock of whoever
	// looks from outside may be wrong. Who works there has a right one, or none of
	// its work.
	UseServiceClock bool
	Observer        observe.Observer
	Meter           Meter // counts the calls of the stores; nil is none
	// SDK are further options of the SDK, whose own variables say where AWS is
	// and who asks.
	SDK []func(*awsconfig.LoadOptions) error
}

// Meter wraps the drivers. It is *meter.Meter, but functions do without one and
// start faster for not having it in their binaries.
type Meter interface {
	Blobs(blob.Store) blob.Store
	Documents(document.Store) document.Store
	Queues(queue.Queues) queue.Queues
}

// unmetered leaves the drivers as they are.
type unmetered struct{}

func (unmetered) Blobs(b blob.Store) blob.Store             { return b }
func (unmetered) Documents(d document.Store) document.Store { return d }
func (unmetered) Queues(q queue.Queues) queue.Queues        { return q }

// OpenStack opens the installation that the config describes. A config without a
// cloud is Invalid. There is nothing to close.
func OpenStack(ctx context.Context, d config.Deployment, o StackOptions) (*Stack, error) {
	if d.Cloud.Provider != config.ProviderAWS {
		return nil, &fault.Error{Kind: fault.Invalid, Err: fault.New(fault.Invalid, "the config names no installation on AWS"),
			Remedy: `say where it is in its table [cloud], with provider = "aws"`}
	}
	o = o.withDefaults()
	if o.UseServiceClock {
		theirs := aws.NewClock(o.Clock)
		o.Clock = theirs
		o.SDK = append(slices.Clone(o.SDK), awsconfig.WithAPIOptions([]func(*middleware.Stack) error{theirs.AddMiddleware}))
	}
	cfg, err := aws.LoadConfig(ctx, o.Log, append([]func(*awsconfig.LoadOptions) error{awsconfig.WithRegion(d.Cloud.Region)}, o.SDK...)...)
	if err != nil {
		return nil, err
	}
	bucket := aws.NewBucket(cfg, d.Cloud.S3.Bucket, aws.BucketOptions{Prefix: d.Cloud.S3.Prefix})
	docs := aws.NewDocuments(cfg, d.Cloud.DynamoDB.Table, aws.DocumentOptions{Listed: aws.ListedPrefixes()})
	queues := &functionQueues{
		store:  aws.NewQueues(cfg, aws.QueueOptions{Prefix: d.Cloud.SQS.Prefix}),
		invoke: aws.NewFunctions(cfg, aws.FunctionOptions{}).Invoke,
		named:  d.Cloud.FunctionName,
	}
	return &Stack{
		Deployment: d,
		Ports: host.Ports{
			Blobs:  blob.Reliable(o.Meter.Blobs(bucket), retry.Policy{}),
			Docs:   document.Reliable(o.Meter.Documents(docs), retry.Policy{}),
			Queues: queue.Reliable(o.Meter.Queues(queues), retry.Policy{}),
			Clock:  o.Clock,
			Log:    o.Log,
			Watch:  o.Observer,
			Source: o.Source,
		},
		Bucket:  bucket,
		Secrets: aws.NewSecrets(cfg, d.Secrets, aws.SecretOptions{Prefix: d.Cloud.Secrets.Prefix}),
		AWS:     cfg,
	}, nil
}

func (o StackOptions) withDefaults() StackOptions {
	if o.Source == "" {
		o.Source = "cli"
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Clock == nil {
		o.Clock = clock.System{}
	}
	if o.Meter == nil {
		o.Meter = unmetered{}
	}
	return o
}
