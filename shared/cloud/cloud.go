package cloud

import (
	"context"
	"log/slog"

	"rollout/shared/blob"
	"rollout/shared/capacity"
	"rollout/shared/clock"
	"rollout/shared/config"
	"rollout/shared/document"
	"rollout/shared/host"
	"rollout/shared/observe"
	"rollout/shared/queue"
	"rollout/shared/secret"
)

// Provider is one cloud. Its methods are safe for concurrent use.
type Provider interface {
	// Name is the provider's value of cloud.provider in a config.
	Name() string
	// Profile says what differs in a deployment of the provider from an
	// installation on one machine. It asks no service.
	Profile(d config.Deployment) Profile
	// Open opens the installation that the config describes. It asks no service
	// for anything, so it says nothing about whether the installation is there,
	// and it needs no Close. A config of another provider is Invalid.
	Open(ctx context.Context, d config.Deployment, o Options) (Installation, error)
	// IsServiceError reports whether err is a service's refusal or a failure to
	// reach it.
	IsServiceError(err error) bool
}

// Installation is an open installation in a cloud.
type Installation interface {
	// Stores returns the installation's ports, with retries.
	Stores() Stores
	// ObjectURL is where people find an object of the bucket, such as
	// "s3://acme/prompts/x.jsonl".
	ObjectURL(key string) string
	// Fleet returns the machines that the installation rents for its pools.
	Fleet() capacity.Fleet
	// Machine returns the machine that the process runs on as the provider knows
	// it, over what the machine knows of itself, and its membership in a fleet.
	Machine(local capacity.Source, log *slog.Logger) (capacity.Source, capacity.Membership)
	// Diagnostics returns what the doctor needs, made on the machine.
	Diagnostics(machine capacity.Source) Diagnostics
}

// Stores is what every part of the product needs of an installation.
type Stores struct {
	Deployment config.Deployment
	Ports      host.Ports
	Secrets    secret.Store // of the names that the deployment allows
}

// Options say how to open an installation. The zero value is a command's.
type Options struct {
	Source string       // sender in envelopes; "cli" if empty
	Log    *slog.Logger // nil logs nothing
	Clock  clock.Clock  // nil is the machine's
	// UseServiceClock tells the time by the services' answers. A command that
	// looks from outside uses it, because its own clock may be wrong; a worker
	// doesn't, because its clock is compared with the services'.
	UseServiceClock bool
	Observer        observe.Observer
	Meter           Meter // counts the calls of the stores; nil is none
}

// Meter wraps the drivers. It is *meter.Meter; functions use none, and start
// faster because their binaries lack it.
type Meter interface {
	Blobs(blob.Store) blob.Store
	Documents(document.Store) document.Store
	Queues(queue.Queues) queue.Queues
}

// Diagnostics is what the doctor needs of a provider beside the ports. Each
// probe returns what it found, for people.
type Diagnostics struct {
	// Reach asks the provider's endpoint for anything.
	Reach func(ctx context.Context) (found string, err error)
	// Authenticate finds credentials and reads a document with them.
	Authenticate func(ctx context.Context) (found string, err error)
	// InspectMachine looks at the machine and at the notices it has.
	InspectMachine func(ctx context.Context) (found string, err error)
	// Remedy says what to do about the failure of a check, named as in the
	// doctor's report; "" if the error says it better itself.
	Remedy func(check string, err error) string
}

// Names of the doctor's checks. They are wire names.
const (
	CheckReachability = "reachability"
	CheckAuth         = "auth"
	CheckObjectStore  = "object_store"
	CheckQueue        = "queue"
	CheckSecretStore  = "secret_store"
	CheckComputeHint  = "compute_hint"
	CheckContentID    = "content_id_roundtrip"
)
