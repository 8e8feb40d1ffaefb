package cli

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"

	"rollout/shared/capacity"
	"rollout/shared/config"
	"rollout/shared/embedded/local"
	"rollout/shared/embedded/machine"
	"rollout/shared/fault"
	"rollout/shared/host"
	"rollout/shared/listen"
	"rollout/shared/observe"
	"rollout/shared/observe/meter"
	"rollout/shared/secret"
)

// workplace is the installation that a worker works for, and the machine on which
// it does.
type workplace struct {
	ports            host.Ports
	deployment       config.Deployment
	secrets          secret.Store
	machine          capacity.Source
	membership       capacity.Membership // nil for a machine that nobody rents
	launchedForFleet bool                // for a fleet, as far as the machine knows
	scratch          string
	guard            func(context.Context) (context.Context, context.CancelFunc) // ends what goes on over damage
	damage           func() error
	close            func() error
}

// openOptions is what a site is opened with.
type openOptions struct {
	log   *slog.Logger
	watch observe.Observer
	meter *meter.Meter // may be nil
}

// open opens the site that the flags name.
func (f flags) open(ctx context.Context, o openOptions) (*workplace, error) {
	switch {
	case f.cloud != "":
		return f.openCloud(ctx, o)
	case f.dir != "":
		return openLaptop(ctx, f.dir, o)
	}
	return nil, &fault.Error{Kind: fault.Invalid, Err: errors.New("--dir is missing"), Remedy: "name the folder that `rollout up` runs in, or the cloud with --cloud"}
}

// openLaptop opens the installation in a folder, which `up` made: a worker of a
// new one would wait for ever.
func openLaptop(ctx context.Context, dir string, o openOptions) (*workplace, error) {
	l, closeAll, err := local.OpenLocal(ctx, dir, local.LocalOptions{Log: o.log, Source: "worker", Observer: o.watch, Meter: o.meter})
	if err != nil {
		return nil, err
	}
	d := l.Deployment
	return &workplace{ports: l.Ports, deployment: d, machine: Machine(dir, o.log), scratch: Scratch(dir),
		secrets: machine.EnvSecrets(append([]string{listen.TokenSecret}, d.Secrets...), os.LookupEnv),
		guard:   l.State.CancelOnDamage, damage: l.State.Damage, close: closeAll}, nil
}

// Machine is the machine of an installation in dir; a file named notice in its
// state stands for a preemption notice.
func Machine(dir string, log *slog.Logger) *machine.Machine {
	return machine.New(machine.Options{GPUProbe: machine.GPUProbeCommand(), NoticePath: filepath.Join(local.StateDir(dir), "notice"), Logger: log})
}

// Scratch is the folder of an installation for files on their way.
func Scratch(dir string) string { return filepath.Join(local.StateDir(dir), "scratch") }
