package aws

import (
	"context"
	"log/slog"
	"slices"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	awsconfig "github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/smithy-go/middleware"

	"rollout/shared/blob"
	"rollout/shared/capacity"
	"rollout/shared/clock"
	"rollout/shared/cloud"
	"rollout/shared/config"
	"rollout/shared/document"
	"rollout/shared/fault"
	"rollout/shared/host"
	"rollout/shared/queue"
	"rollout/shared/retry"
	"rollout/shared/secret"
)

// Stack is an installation that was deployed to AWS: the bucket, the table, the
// queues and the secrets that its config names. It creates no resources: the
// deployment does.
type Stack struct {
	Deployment config.Deployment
	Ports      host.Ports // with retries
	Bucket     *Bucket
	Secrets    secret.Store
	AWS        awssdk.Config // for drivers that only some callers need
	machine    clock.Clock   // this machine's, for the doctor
}

var _ cloud.Installation = (*Stack)(nil)

// StackOptions configure OpenStack. The zero value suits a command.
type StackOptions struct {
	cloud.Options
	// SDK are further options of the SDK's configuration. The SDK's environment
	// variables choose the endpoint and the credentials.
	SDK []func(*awsconfig.LoadOptions) error
}

// OpenStack opens the installation that the config describes; see
// cloud.Provider. It sends no requests, so that a function's cold start does not
// wait for a round trip. The stack needs no closing.
func OpenStack(ctx context.Context, d config.Deployment, o StackOptions) (*Stack, error) {
	if d.Cloud.Provider != config.ProviderAWS {
		return nil, &fault.Error{
			Kind:   fault.Invalid,
			Err:    fault.New(fault.Invalid, "the config describes no installation on AWS"),
			Remedy: `describe the installation in the table [cloud], with provider = "aws"`,
		}
	}
	o = o.withDefaults()
	machine := o.Clock
	if o.UseServiceClock {
		service := NewClock(o.Clock)
		o.Clock = service
		api := []func(*middleware.Stack) error{service.AddMiddleware}
		o.SDK = append(slices.Clone(o.SDK), awsconfig.WithAPIOptions(api))
	}
	options := append([]func(*awsconfig.LoadOptions) error{awsconfig.WithRegion(d.Cloud.Region)}, o.SDK...)
	cfg, err := LoadConfig(ctx, o.Log, options...)
	if err != nil {
		return nil, err
	}
	bucket := NewBucket(cfg, d.Cloud.S3.Bucket, BucketOptions{Prefix: d.Cloud.S3.Prefix})
	docs := NewDocuments(cfg, d.Cloud.DynamoDB.Table, DocumentOptions{Listed: ListedPrefixes()})
	queues := &functionQueues{
		store:        NewQueues(cfg, QueueOptions{Prefix: d.Cloud.SQS.Prefix}),
		invoke:       NewFunctions(cfg, FunctionOptions{}).Invoke,
		functionName: d.Cloud.FunctionName,
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
		Secrets: NewSecrets(cfg, d.Secrets, SecretOptions{Prefix: d.Cloud.Secrets.Prefix}),
		AWS:     cfg,
		machine: machine,
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

// unmetered is a meter that returns the drivers unchanged.
type unmetered struct{}

func (unmetered) Blobs(b blob.Store) blob.Store             { return b }
func (unmetered) Documents(d document.Store) document.Store { return d }
func (unmetered) Queues(q queue.Queues) queue.Queues        { return q }

// Stores returns the stack's ports; see cloud.Installation.
func (s *Stack) Stores() cloud.Stores {
	return cloud.Stores{Deployment: s.Deployment, Ports: s.Ports, Secrets: s.Secrets}
}

// ObjectURL returns an object's address in S3; see cloud.Installation.
func (s *Stack) ObjectURL(key string) string {
	return "s3://" + s.Deployment.Cloud.S3.Bucket + "/" + s.Deployment.Cloud.S3.Prefix + key
}

// Fleet returns the stack's Auto Scaling groups; see cloud.Installation.
func (s *Stack) Fleet() capacity.Fleet {
	return NewFleet(s.AWS, s.Deployment.Cloud.FleetName,
		FleetOptions{Docs: s.Ports.Docs, Clock: s.Ports.Clock, Log: s.Ports.Log})
}

// Machine returns the EC2 instance that the process runs on; see
// cloud.Installation.
func (s *Stack) Machine(local capacity.Source, log *slog.Logger) (capacity.Source, capacity.Membership) {
	instance := NewInstance(s.AWS, local, InstanceOptions{Logger: log})
	return instance, NewFleet(s.AWS, s.Deployment.Cloud.FleetName, FleetOptions{Instance: instance})
}

// EventBus returns the stack's bus of EventBridge, for the events that people are told.
func (s *Stack) EventBus() *EventBus {
	return NewEventBus(s.AWS, s.Deployment.Cloud.EventBusName(), EventBusOptions{})
}
