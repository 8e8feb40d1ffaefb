package aws

import (
	"cmp"
	"context"
	"io"
	"log/slog"
	"net/http"
	"regexp"
	"sync"
	"time"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/feature/ec2/imds"

	"rollout/shared/capacity"
	"rollout/shared/clock"
	"rollout/shared/fault"
	"rollout/shared/observe"
)

// InstanceOptions configure an Instance.
type InstanceOptions struct {
	// Poll is the interval between reads of the metadata; 0 means 5 s, as EC2
	// recommends.
	Poll   time.Duration
	Clock  clock.Clock  // default: the system's
	Logger *slog.Logger // default: discards
	// SDK are further options of the client, for tests.
	SDK []func(*imds.Options)
}

// Instance is an EC2 instance as a capacity.Source: the inventory of its machine
// and the notices of its metadata service. It uses only IMDSv2. An attacker could
// reach the older version through any proxy on the machine.
type Instance struct {
	machine capacity.Source
	imds    *imds.Client
	options InstanceOptions

	mu     sync.Mutex
	id     string    // "" until known
	warned bool      // the log has a warning that the id is unknown
	kind   [2]string // type and life cycle; "" until known
}

var _ capacity.Source = (*Instance)(nil)

// maxMetadata is the most bytes that are read of one metadata response.
const maxMetadata = 64 << 10

// NewInstance returns the EC2 instance whose hardware machine describes; it sends
// no request.
func NewInstance(cfg awssdk.Config, machine capacity.Source, o InstanceOptions) *Instance {
	o.Poll = cmp.Or(o.Poll, 5*time.Second)
	if o.Clock == nil {
		o.Clock = clock.System{}
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	options := append([]func(*imds.Options){func(i *imds.Options) { i.EnableFallback = awssdk.FalseTernary }}, o.SDK...)
	return &Instance{machine: machine, imds: imds.NewFromConfig(cfg, options...), options: o}
}

// Inventory returns the machine's inventory with the id of the EC2 instance; see
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
		inventory.Type, inventory.Class = i.readKind(ctx)
	}
	return inventory, nil
}

// kindName is the format of an instance's type and of its life cycle. Examples:
// "g6.xlarge", "spot".
var kindName = regexp.MustCompile(`^[a-z0-9][a-z0-9.-]{0,62}$`)

// readKind returns the instance's type and life cycle and caches them, "" if the metadata
// lacks them: only the costs of runs depend on it.
func (i *Instance) readKind(ctx context.Context) (instanceType, lifeCycle string) {
	i.mu.Lock()
	kind := i.kind
	i.mu.Unlock()
	if kind[0] != "" {
		return kind[0], kind[1]
	}
	for n, path := range []string{"instance-type", "instance-life-cycle"} {
		content, err := i.metadata(ctx, path)
		if err != nil || !kindName.Match(content) {
			return "", ""
		}
		kind[n] = string(content)
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.kind = kind
	return kind[0], kind[1]
}

// firstWarning reports whether it is called for the first time.
func (i *Instance) firstWarning() bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	first := !i.warned
	i.warned = true
	return first
}

// instanceID is the format of an instance's id. Example: "i-0123456789abcdef0".
var instanceID = regexp.MustCompile(`^i-[0-9a-f]{8,32}$`)

// ID returns the id of the instance and caches it. It fails with NotFound if the
// metadata lacks the id.
func (i *Instance) ID(ctx context.Context) (string, error) {
	i.mu.Lock()
	id := i.id
	i.mu.Unlock()
	if id != "" {
		return id, nil
	}
	content, err := i.metadata(ctx, "instance-id")
	if err != nil {
		return "", err
	}
	if !instanceID.Match(content) {
		return "", fault.New(fault.Corrupt, "read the instance's id: %.40q is not an instance id", content)
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.id = string(content)
	return i.id, nil
}

// Notices delivers each notice of EC2 once, and the notices of the machine; see
// capacity.Source.
func (i *Instance) Notices(ctx context.Context) <-chan capacity.Notice {
	out := make(chan capacity.Notice)
	go func() {
		defer close(out)
		polled := make(chan capacity.Notice)
		go i.poll(ctx, polled)
		own := i.machine.Notices(ctx)
		for polled != nil || own != nil {
			var n capacity.Notice
			var ok bool
			select {
			case n, ok = <-polled:
				if !ok {
					polled = nil
				}
			case n, ok = <-own:
				if !ok {
					own = nil
				}
			}
			if !ok {
				continue
			}
			select {
			case out <- n:
			case <-ctx.Done():
			}
		}
	}()
	return out
}

// poll reads the metadata until ctx ends. It logs the first of consecutive
// failures.
func (i *Instance) poll(ctx context.Context, out chan<- capacity.Notice) {
	defer close(out)
	ticker := time.NewTicker(i.options.Poll)
	defer ticker.Stop()
	sent := map[string]bool{}
	failing := false
	for {
		found, err := i.readNotices(ctx)
		if err != nil && ctx.Err() == nil && !failing {
			i.options.Logger.WarnContext(ctx, "cannot read the instance's notices", observe.KeyError, err)
		}
		failing = err != nil
		for _, n := range found {
			if sent[n.id] {
				continue
			}
			sent[n.id] = true
			select {
			case out <- n.Notice:
			case <-ctx.Done():
				return
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// Notice reads the notices once. It returns the first one, and whether one exists.
func (i *Instance) Notice(ctx context.Context) (n capacity.Notice, found bool, err error) {
	all, err := i.readNotices(ctx)
	if len(all) > 0 {
		return all[0].Notice, true, nil
	}
	return capacity.Notice{}, false, err
}

// readNotices reads every kind of notice once. It returns the notices that it
// could read even if it also returns an error about another kind.
func (i *Instance) readNotices(ctx context.Context) (found []notice, err error) {
	for _, kind := range noticeKinds {
		content, kindErr := i.metadata(ctx, kind.path)
		if fault.Is(kindErr, fault.NotFound) {
			continue
		}
		if kindErr == nil {
			var parsed []notice
			parsed, kindErr = kind.parse(content, i.options.Clock.Now())
			found = append(found, parsed...)
		}
		if kindErr != nil {
			err = kindErr
		}
	}
	return found, err
}

// metadata reads one path of the metadata. It fails with NotFound if the path does
// not exist.
func (i *Instance) metadata(ctx context.Context, path string) ([]byte, error) {
	out, err := i.imds.GetMetadata(ctx, &imds.GetMetadataInput{Path: path})
	if statusOf(err) == http.StatusNotFound {
		return nil, fault.WithKind(fault.NotFound, err, "the instance has no metadata %s", path)
	}
	if err != nil {
		e := translate(ctx, err, "request the instance's metadata %s", path).(*fault.Error)
		if e.Kind != fault.Canceled {
			e.Remedy = "in a container, set a hop limit of 2 in the instance's metadata options; " +
				"ignore this outside EC2, which has no metadata service"
		}
		return nil, e
	}
	defer out.Content.Close() // opened for reading; closing cannot lose data
	content, err := io.ReadAll(io.LimitReader(out.Content, maxMetadata))
	return content, translate(ctx, err, "read the instance's metadata %s", path)
}
