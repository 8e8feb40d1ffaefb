package cli

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"rollout/gpuworker/modelcache"
	"rollout/shared/ca"
	"rollout/shared/capacity"
	"rollout/shared/clock"
	"rollout/shared/cloud"
	"rollout/shared/config"
	"rollout/shared/embedded/machine"
	"rollout/shared/fault"
	"rollout/shared/host"
	"rollout/shared/installation"
	"rollout/shared/listen"
	"rollout/shared/observe"
	"rollout/shared/observe/meter"
	"rollout/shared/secret"
)

// ConfigVariable holds the deployment's config, as TOML, if no file is named.
const ConfigVariable = "ROLLOUT_CONFIG"

// workplace is the installation that a worker works for, and the machine on
// which it does.
type workplace struct {
	ports            host.Ports
	deployment       config.Deployment
	capabilities     cloud.Capabilities
	secrets          secret.Store
	machine          capacity.Source
	membership       capacity.Membership // nil where machines belong to no fleet
	launchedForFleet bool                // as the machine was told when it started
	scratch          string
	private          []string                    // paths of the installation and of keys, for process.Options
	sockets          string                      // for online requests; "" in a cloud
	onlyPool         string                      // for which alone the worker may work; "" is any
	serverTLS        func() (*tls.Config, error) // of a server here; nil where the authority's key is elsewhere
	// guard ends a context when the state turns out to be damaged, and damage
	// returns that damage.
	guard  func(context.Context) (context.Context, context.CancelFunc)
	damage func() error
	close  func() error
}

// openOptions are what a workplace is opened with.
type openOptions struct {
	log   *slog.Logger
	watch observe.Observer
	meter *meter.Meter // may be nil
}

// open opens the workplace that the flags name.
func (f flags) open(ctx context.Context, o openOptions) (*workplace, error) {
	switch {
	case f.join != "":
		return f.openJoined(ctx, o)
	case f.cloud != "":
		return f.openCloud(ctx, o)
	case f.dir != "":
		return openFolder(ctx, f.dir, f.settings, o)
	}
	return nil, &fault.Error{Kind: fault.Invalid, Err: errors.New("--dir is missing"),
		Remedy: "name the folder that `rollout up` runs in, also in " + DirVariable +
			", the cloud with --cloud, or the address of another machine's with --join"}
}

// openFolder opens the installation in a folder, which `up` must have made: a
// worker of a new one would wait forever.
func openFolder(ctx context.Context, dir string, settings []string, o openOptions) (*workplace, error) {
	l, closeAll, err := installation.OpenLocal(ctx, dir, installation.LocalOptions{
		Log: o.log, Source: "worker", Observer: o.watch, Meter: o.meter, Settings: settings})
	if err != nil {
		return nil, err
	}
	d := l.Deployment
	return &workplace{
		ports: l.Ports, deployment: d, capabilities: cloud.OneMachine().Capabilities,
		secrets: machine.EnvSecrets(append([]string{listen.TokenSecret}, d.Secrets...), os.LookupEnv),
		machine: installation.Machine(dir, o.log), scratch: installation.ScratchDir(dir), private: []string{dir},
		sockets: installation.SocketDir(dir),
		serverTLS: func() (*tls.Config, error) {
			a, _, err := ca.Open(installation.TLSDir(dir), time.Now())
			if err != nil {
				return nil, err
			}
			return a.ServerConfig(clock.System{}), nil
		},
		guard: l.State.CancelOnDamage, damage: l.State.Damage, close: closeAll,
	}, nil
}

// openCloud opens the installation that the config describes, and this machine
// as its provider knows it.
func (f flags) openCloud(ctx context.Context, o openOptions) (*workplace, error) {
	provider, err := installation.ProviderOf(f.cloud)
	if err != nil {
		return nil, fault.Wrap(err, "--cloud")
	}
	if len(f.settings) > 0 {
		return nil, &fault.Error{Kind: fault.Invalid, Remedy: "write them into the deployment's config",
			Err: errors.New("--set changes the config of --dir alone")}
	}
	if f.dir != "" {
		return nil, &fault.Error{Kind: fault.Invalid, Remedy: "leave one of them out",
			Err: errors.New("--dir names an installation on this machine, and --cloud one in a cloud")}
	}
	d, err := f.readConfig()
	if err != nil {
		return nil, err
	}
	options := cloud.Options{Source: "worker", Log: o.log, Observer: o.watch}
	if o.meter != nil { // a nil *Meter in the interface would not be nil
		options.Meter = o.meter
	}
	in, err := provider.Open(ctx, d, options)
	if err != nil {
		return nil, err
	}
	s := in.Stores()
	local := machine.New(machine.Options{GPUProbe: machine.GPUProbeCommand(), Logger: o.log})
	source, membership := in.Machine(local, o.log)
	return &workplace{
		ports: s.Ports, deployment: s.Deployment, capabilities: provider.Profile(s.Deployment).Capabilities,
		secrets: s.Secrets, machine: source, membership: membership, launchedForFleet: f.rented,
		guard:  func(ctx context.Context) (context.Context, context.CancelFunc) { return ctx, func() {} },
		damage: func() error { return nil }, close: func() error { return nil },
	}, nil
}

// openBucket opens the bucket of an installation in a cloud, for the commands of its
// machines.
func openBucket(ctx context.Context, d config.Deployment) (modelcache.Bucket, error) {
	provider, err := installation.ProviderOf(d.Cloud.Provider)
	if err != nil {
		return modelcache.Bucket{}, err
	}
	in, err := provider.Open(ctx, d, cloud.Options{Source: "machine"})
	if err != nil {
		return modelcache.Bucket{}, err
	}
	return modelcache.Bucket{Blobs: in.Stores().Ports.Blobs, URL: in.ObjectURL}, nil
}

// readConfig reads the deployment's config from the file that --config names,
// else from the environment.
func (f flags) readConfig() (config.Deployment, error) {
	name, src := ConfigVariable, []byte(os.Getenv(ConfigVariable))
	if f.config != "" {
		var err error
		name = f.config
		if src, err = installation.ReadConfig(name); err != nil {
			return config.Deployment{}, fault.WithKind(fault.Invalid, err, "--config")
		}
	}
	if strings.TrimSpace(string(src)) == "" {
		return config.Deployment{}, &fault.Error{Kind: fault.Invalid, Err: fmt.Errorf("%s is empty", name),
			Remedy: "name the deployment's rollout.toml with --config"}
	}
	return config.ParseDeployment(name, src)
}
