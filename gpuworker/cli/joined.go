package cli

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"

	"rollout/shared/blob"
	"rollout/shared/ca"
	"rollout/shared/clock"
	"rollout/shared/cloud"
	"rollout/shared/config"
	"rollout/shared/document"
	"rollout/shared/embedded/machine"
	"rollout/shared/fault"
	"rollout/shared/host"
	"rollout/shared/queue"
	"rollout/shared/remote"
	"rollout/shared/retry"
)

// JoinTokenVariable is the environment variable with the token by which a worker joins. A flag
// would show it to everyone on the machine.
const JoinTokenVariable = "ROLLOUT_JOIN_TOKEN"

// openJoined joins the installation at an address.
func (f flags) openJoined(ctx context.Context, o openOptions) (_ *workplace, err error) {
	switch {
	case f.dir != "" || f.cloud != "":
		return nil, &fault.Error{Kind: fault.Invalid, Remedy: "leave the others out",
			Err: errors.New("--join names an installation on another machine, --dir one on this machine, " +
				"and --cloud one in a cloud")}
	case len(f.settings) > 0:
		return nil, &fault.Error{Kind: fault.Invalid, Remedy: "pass it to `rollout up` there",
			Err: errors.New("--set changes the config of --dir alone")}
	}
	options := remote.Options{Address: f.join, Clock: clock.System{}, Log: o.log}
	if options.Dir, err = f.certificateDir(); err != nil {
		return nil, err
	}
	if text := os.Getenv(JoinTokenVariable); text != "" {
		if options.Token, err = ca.ParseToken(text); err != nil {
			return nil, fault.Wrap(err, "the variable %s", JoinTokenVariable)
		}
	}
	c, closeClient, err := remote.Join(ctx, options)
	if fault.Is(err, fault.Denied) {
		err = refusedError{err}
	}
	if err != nil {
		return nil, err
	}
	d, pool, err := describe(ctx, c)
	if err == nil && pool != "" && f.pool != "" && f.pool != pool {
		err = &fault.Error{Kind: fault.Invalid, Err: errors.New("this worker has joined for the pool " + pool + " alone"),
			Remedy: "leave --pool out, or join with a token for the other pool"}
	}
	if err != nil {
		return nil, errors.Join(err, closeClient())
	}
	o.log.InfoContext(ctx, "joined", "address", f.join)
	return &workplace{
		ports: host.Ports{
			Blobs:  blob.Reliable(o.meter.Blobs(c.Objects()), retry.Policy{}),
			Docs:   document.Reliable(o.meter.Documents(c.Documents()), retry.Policy{}),
			Queues: queue.Reliable(o.meter.Queues(c.Queues()), retry.Policy{}),
			Clock:  clock.System{}, Log: o.log, Watch: o.watch, Source: "worker",
		},
		deployment: d, capabilities: cloud.OneMachine().Capabilities, secrets: c.Secrets(), onlyPool: pool,
		machine: machine.New(machine.Options{GPUProbe: machine.GPUProbeCommand(), Logger: o.log}),
		private: []string{options.Dir},
		guard:   untilRefused(c), close: closeClient,
		damage: func() error {
			if err := c.Refusal(); err != nil {
				return refusedError{err}
			}
			return nil
		},
	}, nil
}

// describe asks the installation for its config, and for which pool alone the worker may work.
func describe(ctx context.Context, c *remote.Client) (d config.Deployment, pool string, err error) {
	told, err := c.Describe(ctx)
	if err != nil {
		return d, "", err
	}
	d = config.DefaultDeployment()
	if strings.TrimSpace(string(told.Config)) != "" {
		if d, err = config.ParseDeployment("rollout.toml of the installation", told.Config); err != nil {
			return d, "", err
		}
	}
	if d, err = d.Set(told.Settings); err != nil {
		return d, "", err
	}
	if len(d.InferPools()) == 0 { // those that its engine gave it, and whose models its runs name
		var pools []config.Pool
		for _, p := range told.Pools {
			pools = append(pools, config.Pool{Name: p.Name, Model: p.Model})
		}
		d.Pools = append(pools, d.Pools...)
	}
	return d, told.Pool, nil
}

// refusedError is the error of a worker that its installation refuses. Starting it again would not
// help.
type refusedError struct{ error }

// Unwrap returns what the installation said.
func (e refusedError) Unwrap() error { return e.error }

// untilRefused returns the guard of a worker that ends when the installation refuses it.
func untilRefused(c *remote.Client) func(context.Context) (context.Context, context.CancelFunc) {
	return func(ctx context.Context) (context.Context, context.CancelFunc) {
		ctx, cancel := context.WithCancel(ctx)
		go func() {
			select {
			case <-c.Refused():
				cancel()
			case <-ctx.Done():
			}
		}()
		return ctx, cancel
	}
}

// certificateDir returns the folder of the worker's certificate: one for each address.
func (f flags) certificateDir() (string, error) {
	if f.joinDir != "" {
		return f.joinDir, nil
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", &fault.Error{Kind: fault.Invalid, Err: err,
			Remedy: "name a folder for the worker's certificate with --join-dir"}
	}
	name := strings.Map(func(r rune) rune {
		if strings.ContainsRune("/\\:[]%", r) {
			return '_'
		}
		return r
	}, f.join)
	return filepath.Join(cache, "rollout", "join", name), nil
}
