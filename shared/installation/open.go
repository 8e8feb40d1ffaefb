package installation

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"rollout/shared/blob"
	"rollout/shared/clock"
	"rollout/shared/cloud"
	"rollout/shared/config"
	"rollout/shared/embedded/bucket"
	"rollout/shared/embedded/machine"
	"rollout/shared/fault"
	"rollout/shared/host"
	"rollout/shared/listen"
	"rollout/shared/ownership"
	"rollout/shared/secret"
)

// Intervals at which a command that watches a run reads its state. The cloud's is
// longer, because a cloud bills each read.
const (
	localPoll = 250 * time.Millisecond
	cloudPoll = 2 * time.Second
)

// Installation is an open installation with the ports and facts that commands
// need.
type Installation struct {
	Location
	Deployment config.Deployment
	Profile    cloud.Profile
	Ports      host.Ports   // with retries
	Secrets    secret.Store // allows only the names in the deployment
	// Uninitialized is true for a folder in which `up` has never run. Its ports
	// lack documents and queues.
	Uninitialized bool
	// Poll is the interval at which a command that watches a run reads its state.
	Poll time.Duration

	owner ownership.Bucket
	path  func(key string) string
	store func(ctx context.Context, f File) (blob.Info, error)
	close func() error
}

// Options are the options of Open.
type Options struct {
	Log    *slog.Logger
	Clock  clock.Clock
	Getenv func(string) string
	// AllowUninitialized also opens a folder in which `up` has never run.
	AllowUninitialized bool
}

// WrapReader wraps the reader of a file, for example to show progress. The size
// is in bytes. It may return r itself.
type WrapReader func(r io.Reader, size int64) io.Reader

// Open opens the installation at a location. A folder without an installation is
// NotFound. For a cloud it calls no service, so it succeeds even before the
// deployment.
func Open(ctx context.Context, p Location, o Options) (*Installation, error) {
	if p.Cloud != "" {
		return openCloud(ctx, p, o)
	}
	if o.AllowUninitialized {
		has, err := HasState(p.Dir)
		if err != nil {
			return nil, err
		}
		if !has {
			return openUninitialized(p, o)
		}
	}
	l, closeAll, err := OpenLocal(ctx, p.Dir, LocalOptions{Log: o.Log, Clock: o.Clock})
	if err != nil {
		return nil, err
	}
	return newLocal(p, o, l.Deployment, l.Ports, closeAll), nil
}

// Path returns the file path or URL at which users find an object of the bucket.
func (i *Installation) Path(key string) string { return i.path(key) }

// File is a file to put into the bucket.
type File struct {
	Path    string
	Key     string          // of the object
	Options blob.PutOptions // of the put
	Through WrapReader      // around what is sent to another machine
}

// Store puts a file into the bucket. An object under prompts/ becomes a run.
func (i *Installation) Store(ctx context.Context, f File) (blob.Info, error) { return i.store(ctx, f) }

// CheckOwner returns an Invalid error if the bucket belongs to another installation,
// which would answer what is put there. Call it before Store. It returns nil if the user's
// permissions do not suffice to ask.
func (i *Installation) CheckOwner(ctx context.Context) error {
	err := i.owner.Check(ctx)
	if i.Cloud != "" && fault.Is(err, fault.Denied) {
		return nil // the policies of an earlier deployment; the functions check it, too
	}
	return err
}

// Close closes the installation. Call it once.
func (i *Installation) Close() error { return i.close() }

func openCloud(ctx context.Context, p Location, o Options) (*Installation, error) {
	d, err := p.deployment()
	if err != nil {
		return nil, err
	}
	provider, err := ProviderOf(p.Cloud)
	if err != nil {
		return nil, err
	}
	in, err := provider.Open(ctx, d, cloud.Options{Log: o.Log, Clock: o.Clock, UseServiceClock: true})
	if err != nil {
		return nil, err
	}
	s := in.Stores()
	return &Installation{
		Location: p, Deployment: s.Deployment, Profile: provider.Profile(s.Deployment), Ports: s.Ports, Secrets: s.Secrets,
		Poll:  cloudPoll,
		owner: ownership.OfCloud(in),
		path:  in.ObjectURL,
		store: func(ctx context.Context, f File) (blob.Info, error) { return upload(ctx, s.Ports.Blobs, f) },
		close: func() error { return nil },
	}, nil
}

// upload streams a file into a bucket.
func upload(ctx context.Context, to blob.Store, file File) (blob.Info, error) {
	f, err := os.Open(file.Path)
	if err != nil {
		return blob.Info{}, fault.WithKind(fault.Invalid, err, "submit")
	}
	defer f.Close() // read only: nothing can be lost
	stat, err := f.Stat()
	if err != nil {
		return blob.Info{}, fault.WithKind(fault.Invalid, err, "submit")
	}
	info, err := to.Put(ctx, file.Key, file.Through(f, stat.Size()), file.Options)
	return info, fault.Wrap(err, "submit %s as %s", file.Path, file.Key)
}

// openUninitialized opens the bucket of a folder that has no state yet.
func openUninitialized(p Location, o Options) (*Installation, error) {
	if info, err := os.Stat(p.Dir); err != nil || !info.IsDir() { // the name is probably misspelt
		return nil, &fault.Error{Kind: fault.NotFound, Err: fmt.Errorf("there is no folder %s", p.Dir),
			Remedy: fmt.Sprintf("start `rollout up --dir %s` first, or name the folder that it runs in", p.Dir)}
	}
	d, err := ReadDeployment(p.Dir)
	if err != nil {
		return nil, err
	}
	b, err := bucket.Open(BucketDir(p.Dir), bucket.Options{Clock: o.Clock, Settle: d.Input.Settle.Std()})
	if err != nil {
		return nil, err
	}
	i := newLocal(p, o, d, host.Ports{Blobs: b, Clock: o.Clock, Log: o.Log}, b.Close)
	i.Uninitialized = true
	return i, nil
}

func newLocal(p Location, o Options, d config.Deployment, ports host.Ports, closeAll func() error) *Installation {
	dir := BucketDir(p.Dir)
	return &Installation{
		Location: p, Deployment: d, Profile: cloud.OneMachine(), Ports: ports, Secrets: envSecrets(d, o.Getenv),
		Poll:  localPoll,
		owner: localOwnership(p.Dir, ports),
		path:  func(key string) string { return filepath.Join(dir, filepath.FromSlash(key)) },
		store: func(ctx context.Context, f File) (blob.Info, error) {
			return bucket.PutFile(ctx, dir, f.Path, f.Key, f.Options)
		},
		close: closeAll,
	}
}

// envSecrets returns the secrets of an installation on this machine, read from
// environment variables: the API's token and the names that the deployment
// allows. An empty variable counts as unset.
func envSecrets(d config.Deployment, getenv func(string) string) secret.Store {
	return machine.EnvSecrets(append([]string{listen.TokenSecret}, d.Secrets...), func(variable string) (string, bool) {
		v := getenv(variable)
		return v, v != ""
	})
}
