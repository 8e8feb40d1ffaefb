package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"rollout/shared/aws"
	"rollout/shared/aws/stack"
	"rollout/shared/config"
	"rollout/shared/embedded/local"
	"rollout/shared/embedded/machine"
	"rollout/shared/fault"
)

// ConfigVariable holds the deployment's config, as TOML, where no file is
// named.
const ConfigVariable = "ROLLOUT_CONFIG"

// openCloud opens the stack that the config names, and the instance that this
// machine is.
func (f flags) openCloud(ctx context.Context, o openOptions) (*workplace, error) {
	if f.cloud != config.ProviderAWS {
		return nil, &fault.Error{Kind: fault.Invalid, Err: fmt.Errorf("--cloud: there is no %q", f.cloud), Remedy: "use " + config.ProviderAWS}
	}
	if f.dir != "" {
		return nil, &fault.Error{Kind: fault.Invalid, Err: errors.New("--dir is of an installation on this machine, and --cloud of one that is not"), Remedy: "leave one of them out"}
	}
	d, err := f.readConfig()
	if err != nil {
		return nil, err
	}
	s, err := stack.OpenStack(ctx, d, stack.StackOptions{Source: "worker", Log: o.log, Observer: o.watch, Meter: o.meter})
	if err != nil {
		return nil, err
	}
	machine := machine.New(machine.Options{GPUProbe: machine.GPUProbeCommand(), Logger: o.log})
	instance := aws.NewInstance(s.AWS, machine, aws.InstanceOptions{Logger: o.log})
	return &workplace{ports: s.Ports, deployment: s.Deployment, secrets: s.Secrets, machine: instance,
		membership:       aws.NewFleet(s.AWS, d.Cloud.FleetName, aws.FleetOptions{Instance: instance}),
		launchedForFleet: f.rented,
		guard:            func(ctx context.Context) (context.Context, context.CancelFunc) { return ctx, func() {} },
		damage:           func() error { return nil }, close: func() error { return nil }}, nil
}

// readConfig reads the deployment's config from the file that --config names,
// else from the environment.
func (f flags) readConfig() (config.Deployment, error) {
	name, src := ConfigVariable, []byte(os.Getenv(ConfigVariable))
	if f.config != "" {
		var err error
		name = f.config
		if src, err = local.ReadConfig(name); err != nil {
			return config.Deployment{}, fault.WithKind(fault.Invalid, err, "--config")
		}
	}
	if strings.TrimSpace(string(src)) == "" {
		return config.Deployment{}, &fault.Error{Kind: fault.Invalid, Err: fmt.Errorf("%s is empty", name), Remedy: "name the deployment's rollout.toml with --config"}
	}
	return config.ParseDeployment(name, src)
}
