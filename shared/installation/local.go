package installation

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"rollout/shared/clock"
	"rollout/shared/config"
	"rollout/shared/document"
	"rollout/shared/embedded/bucket"
	"rollout/shared/embedded/machine"
	"rollout/shared/embedded/sqlite"
	"rollout/shared/fault"
	"rollout/shared/host"
	"rollout/shared/observe"
	"rollout/shared/observe/meter"
	"rollout/shared/queue"
	"rollout/shared/retry"
)

// Local is an open installation in a folder.
type Local struct {
	Dir        string
	Deployment config.Deployment
	Bucket     *bucket.Bucket
	State      *sqlite.State
	Ports      host.Ports // over Bucket and State, with retries
}

// LocalOptions are the options of OpenLocal. The zero value suits a command.
type LocalOptions struct {
	Create     bool         // create missing folders and claim the bucket, as `up` does
	CheckState bool         // check the state for damage first, for at most checkFor
	Source     string       // source of sent events; default: "cli"
	Log        *slog.Logger // nil discards logs
	Clock      clock.Clock  // default: the machine's clock
	Observer   observe.Observer
	Meter      *meter.Meter // counts the calls of the stores; optional
	Settings   []string     // written over the config, as of --set: see config.Deployment.Set
}

// OpenLocal opens the installation in the folder dir. Call the returned function
// once to close it. Without Create, a folder without state is NotFound. With Create,
// the bucket of another installation is Invalid.
func OpenLocal(ctx context.Context, dir string, o LocalOptions) (*Local, func() error, error) {
	o = o.withDefaults()
	d, err := ReadDeployment(dir)
	if err != nil {
		return nil, nil, err
	}
	if d, err = d.Set(o.Settings); err != nil {
		return nil, nil, err
	}
	if !o.Create {
		if err := mustHaveState(dir); err != nil {
			return nil, nil, err
		}
	}
	bucket, err := bucket.Open(BucketDir(dir), bucket.Options{Clock: o.Clock, Settle: d.Input.Settle.Std()})
	if err != nil {
		return nil, nil, err
	}
	state, err := sqlite.Open(ctx, StateDir(dir), sqlite.Options{Clock: o.Clock, Logger: o.Log, Check: o.check()})
	if err != nil {
		return nil, nil, errors.Join(err, bucket.Close())
	}
	o.Meter.TrackCommits(state.Commits)
	l := &Local{Dir: dir, Deployment: d, Bucket: bucket, State: state, Ports: host.Ports{
		Blobs:  o.Meter.Blobs(bucket),
		Docs:   document.Reliable(o.Meter.Documents(state.Documents()), retry.Policy{}),
		Queues: queue.Reliable(o.Meter.Queues(state.Queues()), retry.Policy{}),
		Clock:  o.Clock,
		Log:    o.Log,
		Watch:  o.Observer,
		Source: o.Source,
	}}
	if o.Create {
		if err := localOwnership(dir, l.Ports).Claim(ctx); err != nil {
			return nil, nil, errors.Join(err, l.close())
		}
	}
	return l, l.close, nil
}

// checkFor bounds how long the check for damage delays a start. The check reads
// one to two gigabytes in that time.
const checkFor = 3 * time.Second

func (o LocalOptions) check() time.Duration {
	if o.CheckState {
		return checkFor
	}
	return 0
}

func (o LocalOptions) withDefaults() LocalOptions {
	if o.Source == "" {
		o.Source = "cli"
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Clock == nil {
		o.Clock = clock.System{}
	}
	return o
}

func (l *Local) close() error { return errors.Join(l.State.Close(), l.Bucket.Close()) }

// BucketDir returns the folder of the bucket of the installation in dir.
func BucketDir(dir string) string { return filepath.Join(dir, "bucket") }

// StateDir returns the folder of the state of the installation in dir.
func StateDir(dir string) string { return filepath.Join(dir, "state") }

// ScratchDir returns the folder for temporary files of the installation in dir.
func ScratchDir(dir string) string { return filepath.Join(StateDir(dir), "scratch") }

// TLSDir returns the folder of the certificate authority of the installation in dir.
func TLSDir(dir string) string { return filepath.Join(dir, "tls") }

// SocketDir returns the folder of the sockets at which workers take online requests.
func SocketDir(dir string) string { return filepath.Join(StateDir(dir), "online") }

// Machine returns the machine that an installation in dir runs on. The machine
// reports a preemption notice when a file named notice appears in the state
// folder.
func Machine(dir string, log *slog.Logger) *machine.Machine {
	return machine.New(machine.Options{
		GPUProbe:   machine.GPUProbeCommand(),
		NoticePath: filepath.Join(StateDir(dir), "notice"),
		Logger:     log,
	})
}

// HasState reports whether `up` has ever run in dir.
func HasState(dir string) (bool, error) {
	entries, err := os.ReadDir(StateDir(dir))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return false, nil
	case errors.Is(err, fs.ErrPermission):
		return false, fault.WithKind(fault.Denied, err, "look for the state")
	case err != nil:
		return false, fault.WithKind(fault.Invalid, err, "look for the state")
	}
	return len(entries) > 0, nil
}

func mustHaveState(dir string) error {
	has, err := HasState(dir)
	if err != nil || has {
		return err
	}
	return &fault.Error{Kind: fault.NotFound, Err: fmt.Errorf("there is no rollout state in %s", dir),
		Remedy: fmt.Sprintf("start `rollout up --dir %s` first, or name the folder that it runs in", dir)}
}

// DeploymentFile is the file name of an installation's config.
const DeploymentFile = "rollout.toml"

// ReadDeployment reads dir/rollout.toml. Without the file it returns the default
// deployment. The config of an installation in a cloud is Invalid.
func ReadDeployment(dir string) (config.Deployment, error) {
	path := filepath.Join(dir, DeploymentFile)
	src, err := ReadConfig(path)
	if errors.Is(err, fs.ErrNotExist) {
		return config.DefaultDeployment(), nil
	}
	if err != nil {
		return config.Deployment{}, err
	}
	d, err := config.ParseDeployment(path, src)
	if err == nil && d.Cloud.Configured() {
		return d, &fault.Error{Kind: fault.Invalid, Err: fmt.Errorf("%s describes an installation in a cloud", path),
			Remedy: "add --cloud " + d.Cloud.Provider + ", or name the folder of another installation"}
	}
	return d, err
}

// ReadConfig reads a config file. It reads at most one byte more than
// config.MaxFileSize, so that the parser refuses larger files. A missing file is
// NotFound; other errors are Invalid.
func ReadConfig(path string) ([]byte, error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fault.WithKind(fault.NotFound, err, "read config")
	}
	if err != nil {
		return nil, fault.WithKind(fault.Invalid, err, "read config")
	}
	defer f.Close() // read only: nothing can be lost
	b, err := io.ReadAll(io.LimitReader(f, config.MaxFileSize+1))
	return b, fault.WithKind(fault.Invalid, err, "read config %s", path)
}
