package gcp

import (
	"context"
	"log/slog"

	"google.golang.org/api/option"

	"rollout/shared/blob"
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

// Stack is an installation that was deployed to Google Cloud: the bucket, the
// database, the topics with their subscriptions, and the secrets that its config
// names. It creates no resources: the deployment does.
type Stack struct {
	Deployment config.Deployment
	Ports      host.Ports // with retries
	Bucket     *Bucket
	Secrets    secret.Store
	Google     Config // for probes
	rest       *rest  // for services of which a few methods are used
	topics     *Queues
	machine    clock.Clock // this machine's, for the doctor
}

// StackOptions configure OpenStack. The zero value suits a command.
type StackOptions struct {
	cloud.Options
	// Storage, Firestore, PubSub and SecretManager are further options of the clients,
	// for tests. The SDK's environment variables choose endpoints and credentials.
	Storage, Firestore, PubSub, SecretManager []option.ClientOption
	// Services are those of the client of all other services.
	Services []option.ClientOption
}

// OpenStack opens the installation that the config describes; see
// cloud.Provider. It sends no requests, so that a function's cold start does not
// wait for a round trip. The stack needs no closing.
func OpenStack(ctx context.Context, d config.Deployment, o StackOptions) (*Stack, error) {
	if d.Cloud.Provider != config.ProviderGCP {
		return nil, &fault.Error{
			Kind:   fault.Invalid,
			Err:    fault.New(fault.Invalid, "the config describes no installation on Google Cloud"),
			Remedy: `describe the installation in the table [cloud], with provider = "gcp"`,
		}
	}
	o = o.withDefaults()
	cfg, err := LoadConfig(d.Cloud.Project)
	if err != nil {
		return nil, err
	}
	machine := o.Clock
	if o.UseServiceClock {
		cfg.Clock = NewClock(o.Clock)
		o.Clock = cfg.Clock
	}
	bucket, err := NewBucket(ctx, cfg, d.Cloud.GCS.Bucket, BucketOptions{Prefix: d.Cloud.GCS.Prefix, SDK: o.Storage})
	if err != nil {
		return nil, err
	}
	docs, err := NewDocuments(ctx, cfg, DocumentOptions{Database: d.Cloud.Firestore.Database, Listed: ListedDocuments(),
		SDK: o.Firestore})
	if err != nil {
		return nil, err
	}
	queues, err := NewQueues(ctx, cfg, QueueOptions{Prefix: d.Cloud.PubSub.Prefix, Clock: o.Clock, SDK: o.PubSub})
	if err != nil {
		return nil, err
	}
	secrets, err := NewSecrets(ctx, cfg, d.Secrets, SecretOptions{Prefix: d.Cloud.Secrets.Prefix, SDK: o.SecretManager})
	if err != nil {
		return nil, err
	}
	services, err := newREST(ctx, cfg, o.Services...)
	if err != nil {
		return nil, err
	}
	return &Stack{
		rest:       services,
		topics:     queues,
		Deployment: d,
		Ports: host.Ports{
			Blobs:  blob.Reliable(o.Meter.Blobs(bucket), retry.Policy{}),
			Docs:   document.Reliable(o.Meter.Documents(docs), retry.Policy{}),
			Queues: queue.Reliable(o.Meter.Queues(functionQueues{queues}), retry.Policy{}),
			Clock:  o.Clock,
			Log:    o.Log,
			Watch:  o.Observer,
			Source: o.Source,
		},
		Bucket:  bucket,
		Secrets: secrets,
		Google:  cfg,
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

// ObjectURL returns an object's address in Cloud Storage; see cloud.Installation.
func (s *Stack) ObjectURL(key string) string {
	return "gs://" + s.Deployment.Cloud.GCS.Bucket + "/" + s.Deployment.Cloud.GCS.Prefix + key
}

// EventTopic returns the stack's topic of Pub/Sub for the events that people are told.
func (s *Stack) EventTopic() *EventTopic { return NewEventTopic(s.topics) }
