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

// InstanceOptions are what an Instance is not told by its port.
type InstanceOptions struct {
	// Poll is how often the metadata is looked at; 0 is 5 s, as EC2 advises.
	Poll   time.Duration
	Clock  clock.Clock  // nil is the system's
	Logger *slog.Logger // nil discards
	// SDK are further options of the client, for tests.
	SDK []func(*imds.Options)
}

// Instance is an EC2 instance: what the machine has, and the notices of its
// metadata service. It speaks IMDSv2 alone, never the older version, which
// anything on the machine that forwards requests could be made to ask.
type Instance struct {
	machine capacity.Source
	imds    *imds.Client
	options InstanceOptions

	mu   sync.Mutex
	id   string // once it is known
	mute bool   // the metadata did not tell, which was said
}

var _ capacity.Source = (*Instance)(nil)

// maxMetadata bounds what is read of one answer, in bytes.
const maxMetadata = 64 << 10

// NewInstance returns the instance around the machine that it is; it asks for
// nothing yet.
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

// Inventory looks at the machine itself, and asks EC2 for its id; see
// capacity.Source. A machine that is not told its id is none that can't work:
// that is said once.
func (i *Instance) Inventory(ctx context.Context) (capacity.Inventory, error) {
	inventory, err := i.machine.Inventory(ctx)
	if err != nil {
		return inventory, err
	}
	inventory.Instance, err = i.ID(ctx)
	if fault.Is(err, fault.Canceled) {
		return inventory, err
	}
	if err != nil && i.firstSilence() {
		i.options.Logger.WarnContext(ctx, "the instance's id is not known", observe.KeyError, err)
	}
	return inventory, nil
}

func (i *Instance) firstSilence() bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	said := i.mute
	i.mute = true
	return !said
}

// instanceID is the format of instances' ids. Example: "i-0123456789abcdef0".
var instanceID = regexp.MustCompile(`^i-[0-9a-f]{8,32}$`)

// ID returns the instance's id; NotFound if the metadata has none.
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
		return "", fault.New(fault.Corrupt, "the instance's metadata give %.40q for its id", content)
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.id = string(content)
	return i.id, nil
}

// Notices delivers EC2's notices, each once, and those of the machine; see
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

// poll looks at the metadata until ctx ends. A service that does not answer is
// told of once, and again when it has answered meanwhile.
func (i *Instance) poll(ctx context.Context, out chan<- capacity.Notice) {
	defer close(out)
	ticker := time.NewTicker(i.options.Poll)
	defer ticker.Stop()
	told := map[string]bool{}
	silent := false
	for {
		found, err := i.look(ctx)
		if err != nil && ctx.Err() == nil && !silent {
			i.options.Logger.WarnContext(ctx, "no notices", observe.KeyError, err)
		}
		silent = err != nil
		for _, n := range found {
			if told[n.id] {
				continue
			}
			told[n.id] = true
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

// Notice asks once, and reports whether the instance is about to be taken away.
// Notices tell when.
func (i *Instance) Notice(ctx context.Context) (n capacity.Notice, found bool, err error) {
	all, err := i.look(ctx)
	if len(all) > 0 {
		return all[0].Notice, true, nil
	}
	return capacity.Notice{}, false, err
}

// look asks for every kind of notice once. It returns those that it found also
// beside an error about others.
func (i *Instance) look(ctx context.Context) (found []notice, err error) {
	for _, kind := range notices {
		content, oneErr := i.metadata(ctx, kind.path)
		if fault.Is(oneErr, fault.NotFound) {
			continue
		}
		if oneErr == nil {
			var some []notice
			some, oneErr = kind.parse(content, i.options.Clock.Now())
			found = append(found, some...)
		}
		if oneErr != nil {
			err = oneErr
		}
	}
	return found, err
}

// metadata reads one path; NotFound if there is nothing.
func (i *Instance) metadata(ctx context.Context, path string) ([]byte, error) {
	out, err := i.imds.GetMetadata(ctx, &imds.GetMetadataInput{Path: path})
	if statusOf(err) == http.StatusNotFound {
		return nil, fault.WithKind(fault.NotFound, err, "no metadata %s", path)
	}
	if err != nil {
		e := translate(ctx, err, "ask the instance's metadata for %s", path).(*fault.Error)
		if e.Kind != fault.Canceled {
			e.Remedy = "in a container, the instance's metadata options need a hop limit of 2; off EC2 there is none"
		}
		return nil, e
	}
	defer out.Content.Close() // read only: nothing can be lost
	content, err := io.ReadAll(io.LimitReader(out.Content, maxMetadata))
	return content, translate(ctx, err, "read the instance's metadata %s", path)
}
