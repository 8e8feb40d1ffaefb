package gcp

import (
	"cmp"
	"context"
	"log/slog"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"time"

	"cloud.google.com/go/compute/metadata"

	"rollout/shared/capacity"
	"rollout/shared/core/cost"
	"rollout/shared/fault"
	"rollout/shared/observe"
)

// InstanceOptions configure an Instance.
type InstanceOptions struct {
	// Retry is the wait after the metadata could not be read; 0 means 5 s.
	Retry  time.Duration
	Logger *slog.Logger // default: discards
	// Client sends the requests, for tests; default: the SDK's, which obeys
	// GCE_METADATA_HOST.
	Client *http.Client
}

// Instance is a Compute Engine instance as a capacity.Source: the inventory of its
// machine and the notices of its metadata server.
//
// The instance is its numeric id: one that was preempted or repaired comes back
// under the same name, and is another machine.
type Instance struct {
	machine capacity.Source
	client  *metadata.Client
	options InstanceOptions

	mu     sync.Mutex
	id     string    // "" until known
	warned bool      // the log has a warning that the id is unknown
	kind   cost.Kind // zero until known
}

var _ capacity.Source = (*Instance)(nil)

const (
	// preemptionLead is how long after its notice Compute Engine switches a spot machine
	// off.
	preemptionLead = 30 * time.Second
	// maintenanceLead is the shortest time between the notice of maintenance and the end
	// of a machine that ends for it. A machine with GPUs has an hour, but the notice does
	// not say when it was given.
	maintenanceLead = time.Minute
	// answerInTime makes the metadata server answer within a minute though nothing changed,
	// so that a lost connection does not hide a notice.
	answerInTime = "?timeout_sec=60"
	// idTimeout is the time limit of reading the id: outside Compute Engine nothing
	// answers.
	idTimeout = 5 * time.Second
)

// noticeKinds are the values of the metadata that announce the end of the machine.
var noticeKinds = []struct {
	path, value string
	notice      capacity.Notice
}{
	{"instance/preempted", "TRUE", capacity.Notice{Reason: "spot", Lead: preemptionLead}},
	// The other values are NONE, and MIGRATE_ON_HOST_MAINTENANCE: the machine goes on then.
	{"instance/maintenance-event", "TERMINATE_ON_HOST_MAINTENANCE",
		capacity.Notice{Reason: "maintenance", Lead: maintenanceLead}},
}

// NewInstance returns the instance whose hardware machine describes; it sends no
// request.
func NewInstance(machine capacity.Source, o InstanceOptions) *Instance {
	o.Retry = cmp.Or(o.Retry, 5*time.Second)
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return &Instance{machine: machine, client: metadata.NewWithOptions(&metadata.Options{Client: o.Client}), options: o}
}

// Inventory returns the machine's inventory with the id of the instance; see
// capacity.Source. A machine can work without its id, so a failure to read it is
// logged once and is not an error.
func (i *Instance) Inventory(ctx context.Context) (capacity.Inventory, error) {
	inventory, err := i.machine.Inventory(ctx)
	if err != nil {
		return inventory, err
	}
	inventory.Instance, err = i.ID(ctx)
	if fault.Is(err, fault.Canceled) {
		return inventory, err
	}
	if err != nil && i.firstWarning() {
		i.options.Logger.WarnContext(ctx, "cannot read the instance's id", observe.KeyError, err)
	}
	if err == nil {
		kind := i.readKind(ctx)
		inventory.Type, inventory.Class = kind.Type, kind.Class
	}
	return inventory, nil
}

// machineType is the format of an instance's type in the metadata. Example:
// "projects/123/machineTypes/g2-standard-8".
var machineType = regexp.MustCompile(`^projects/[^/]+/machineTypes/([a-z0-9][a-z0-9-]{0,62})$`)

// readKind returns the instance's type and whether it is a spot machine and caches them,
// zero if the metadata lacks them: only the costs of runs depend on it.
func (i *Instance) readKind(ctx context.Context) cost.Kind {
	i.mu.Lock()
	kind := i.kind
	i.mu.Unlock()
	if kind.Type != "" {
		return kind
	}
	content, err := i.read(ctx, "instance/machine-type")
	found := machineType.FindStringSubmatch(content)
	if err != nil || found == nil {
		return cost.Kind{}
	}
	preemptible, err := i.read(ctx, "instance/scheduling/preemptible")
	if err != nil {
		return cost.Kind{}
	}
	kind = cost.Kind{Type: found[1], Class: cost.OnDemand}
	if strings.EqualFold(preemptible, "TRUE") {
		kind.Class = cost.Spot
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.kind = kind
	return kind
}

// firstWarning reports whether it is called for the first time.
func (i *Instance) firstWarning() bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	first := !i.warned
	i.warned = true
	return first
}

// instanceID is the format of an instance's id. Example: "4520031799277581759".
var instanceID = regexp.MustCompile(`^[0-9]{1,20}$`)

// ID returns the id of the instance and caches it.
func (i *Instance) ID(ctx context.Context) (string, error) {
	i.mu.Lock()
	id := i.id
	i.mu.Unlock()
	if id != "" {
		return id, nil
	}
	id, err := i.read(ctx, "instance/id")
	if err != nil {
		return "", err
	}
	if !instanceID.MatchString(id) {
		return "", fault.New(fault.Corrupt, "read the instance's id: %.40q is not an instance id", id)
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.id = id
	return id, nil
}

// read returns a value of the metadata.
func (i *Instance) read(ctx context.Context, path string) (string, error) {
	limited, cancel := context.WithTimeout(ctx, idTimeout)
	defer cancel()
	value, err := i.client.GetWithContext(limited, path)
	if err == nil {
		return strings.TrimSpace(value), nil
	}
	e := translate(ctx, err, "request the instance's metadata %s", path).(*fault.Error)
	if ctx.Err() == nil {
		if limited.Err() != nil {
			e.Kind = fault.Unavailable
		}
		e.Remedy = "ignore this outside Compute Engine, which has no metadata server"
	}
	return "", e
}

// Notices delivers each notice of Compute Engine once, and the notices of the
// machine; see capacity.Source.
func (i *Instance) Notices(ctx context.Context) <-chan capacity.Notice {
	out, found := make(chan capacity.Notice), make(chan capacity.Notice)
	for _, kind := range noticeKinds {
		go i.watch(ctx, kind.path, kind.value, func() {
			select {
			case found <- kind.notice:
			case <-ctx.Done():
			}
		})
	}
	go func() {
		defer close(out)
		own := i.machine.Notices(ctx)
		for {
			var n capacity.Notice
			ok := true
			select {
			case <-ctx.Done():
				return
			case n = <-found:
			case n, ok = <-own:
			}
			if !ok {
				own = nil // it closes when ctx ends, at the latest
				continue
			}
			select {
			case out <- n:
			case <-ctx.Done():
				return
			}
		}
	}()
	return out
}

// watch calls announce once, when the metadata at the path has the value. The
// metadata server answers when the value changes, so that a notice comes at once.
// watch returns after that, or when ctx ends. It logs the first of consecutive
// failures.
func (i *Instance) watch(ctx context.Context, path, value string, announce func()) {
	announced, failing := false, false
	for ctx.Err() == nil {
		err := i.client.SubscribeWithContext(ctx, path+answerInTime, func(ctx context.Context, now string, _ bool) error {
			failing = false
			if strings.TrimSpace(now) != value {
				return nil
			}
			announced = true
			return context.Canceled // ends the subscription
		})
		if announced {
			announce()
			return
		}
		if ctx.Err() == nil && !failing {
			i.options.Logger.WarnContext(ctx, "cannot read the instance's notices", "path", path, observe.KeyError, err)
		}
		failing = true
		select {
		case <-ctx.Done():
		case <-time.After(i.options.Retry):
		}
	}
}

// Notice reads the notices once. It returns the first one, and whether one exists.
func (i *Instance) Notice(ctx context.Context) (n capacity.Notice, found bool, err error) {
	for _, kind := range noticeKinds {
		now, err := i.read(ctx, kind.path)
		switch {
		case fault.Is(err, fault.NotFound):
		case err != nil:
			return capacity.Notice{}, false, err
		case now == kind.value:
			return kind.notice, true, nil
		}
	}
	return capacity.Notice{}, false, nil
}
