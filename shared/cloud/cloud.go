package cloud

import (
	"context"
	"log/slog"
	"time"

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
	// Name returns the provider's value of cloud.provider in a config.
	Name() string
	// Profile says how a deployment of the provider differs from an installation
	// on one machine. It calls no service.
	Profile(d config.Deployment) Profile
	// Open opens the installation that the config describes. It calls no service,
	// so it also succeeds if the installation does not exist. The result needs no
	// Close. A config of another provider is Invalid.
	Open(ctx context.Context, d config.Deployment, o Options) (Installation, error)
	// IsServiceError reports whether one of the provider's services refused a
	// request or was unreachable.
	IsServiceError(err error) bool
}

// Installation is an open installation in a cloud.
type Installation interface {
	// Stores returns the installation's ports, with retries.
	Stores() Stores
	// ObjectURL returns the URL at which users find an object of the bucket, such
	// as "s3://acme/prompts/x.jsonl".
	ObjectURL(key string) string
	// Fleet returns the machines that the installation rents for its pools.
	Fleet() capacity.Fleet
	// Machine returns the machine that the process runs on, and its membership in
	// a fleet. The returned source adds the provider's facts and preemption
	// notices to those of local.
	Machine(local capacity.Source, log *slog.Logger) (capacity.Source, capacity.Membership)
	// Diagnostics returns the probes of the doctor, which runs on the machine.
	Diagnostics(machine capacity.Source) Diagnostics
}

// Stores holds the config and ports of an installation.
type Stores struct {
	Deployment config.Deployment
	Ports      host.Ports
	Secrets    secret.Store // allows only the names in the deployment
}

// Options are the options of Provider.Open. The zero value suits a command.
type Options struct {
	Source string       // source of sent events; default: "cli"
	Log    *slog.Logger // nil discards logs
	Clock  clock.Clock  // default: the machine's clock
	// UseServiceClock takes the time from the services' replies. A command sets it,
	// because the clock of the user's machine may be wrong. A worker does not set
	// it, because its clock is compared with the services'.
	UseServiceClock bool
	Observer        observe.Observer
	Meter           Meter // counts the calls of the stores; optional
}

// Meter wraps the drivers to count their calls. *meter.Meter implements it.
// Functions do not use it, so that their binaries stay small and start faster.
type Meter interface {
	Blobs(blob.Store) blob.Store
	Documents(document.Store) document.Store
	Queues(queue.Queues) queue.Queues
}

// Diagnostics holds the provider's probes for the doctor, which also checks the
// ports. Each probe returns a text for the user that says what it found.
type Diagnostics struct {
	// Before are checks of the provider's own that the doctor makes first, in this order:
	// what fails first in a new deployment. May be empty.
	Before []Probe
	// Reach sends a request to the provider's endpoint and accepts any reply.
	Reach func(ctx context.Context) (found string, err error)
	// Authenticate finds credentials and reads a document with them.
	Authenticate func(ctx context.Context) (found string, err error)
	// InspectMachine reads the machine's inventory and its pending notices.
	InspectMachine func(ctx context.Context) (found string, err error)
	// Remedy returns the remedy for the failure of a check; see the names below.
	// It returns "" if the error's own remedy is better.
	Remedy func(check string, err error) string
}

// Probe is a check of a provider's own. Run returns a text for the user that says what it
// found. An error that is *Unseen says that the check can't be made from here.
type Probe struct {
	Name  string        // a wire name. Example: "gpu_quota"
	Limit time.Duration // a probe that takes longer fails
	Run   func(ctx context.Context) (found string, err error)
}

// Unseen is the error of a probe that can't look from where it runs: its account may not,
// or a service that knows is not enabled. Nothing is wrong with the installation for that.
type Unseen struct{ Reason string }

// Error returns the reason.
func (u *Unseen) Error() string { return u.Reason }

// Names of the doctor's checks. They are wire names.
const (
	CheckModels       = "models"
	CheckModelAccess  = "model_access"
	CheckEngineImage  = "engine_image"
	CheckReachability = "reachability"
	CheckAuth         = "auth"
	CheckObjectStore  = "object_store"
	CheckQueue        = "queue"
	CheckSecretStore  = "secret_store"
	CheckComputeHint  = "compute_hint"
	CheckContentID    = "content_id_roundtrip"
)
