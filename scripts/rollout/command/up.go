package command

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"os"
	"slices"

	"github.com/spf13/cobra"

	"rollout/gpuworker/cli"
	"rollout/gpuworker/plugin"
	"rollout/gpuworker/process"
	"rollout/gpuworker/tinylm/weights"
	"rollout/scripts/rollout/standalone"
	"rollout/shared/config"
	"rollout/shared/embedded/machine"
	"rollout/shared/fault"
	"rollout/shared/installation"
	"rollout/shared/listen"
	"rollout/shared/observe/meter"
	"rollout/shared/observe/setup"
	"rollout/shared/secret"
)

const (
	defaultListen = "127.0.0.1:8787" // default of --listen
	noListen      = "off"            // value of --listen that disables the API
)

// upFlags are the flags of up.
type upFlags struct {
	dir, model, listen string
	joinListen         string
	encryption         listen.TLS
	engine             []string
	workers            int
	noWorkers          bool
	once               bool
	settings           *[]string // of --set
	observe            setup.Options
	plugins            []string
	hotReload          bool
}

func upCommand(e *Env) *cobra.Command {
	var f upFlags
	c := &cobra.Command{
		Use:   "up",
		Short: "Run an installation in a folder: its functions, its workers and its API",
		Long: "Answers every prompts file in DIR/bucket/prompts, also files that you put there later, and writes the\n" +
			"completions of each run to DIR/bucket/runs.\n\n" +
			"The first Ctrl-C drains the workers. Start up again to continue unfinished runs where they stopped.",
		Args:        arguments(0),
		Annotations: map[string]string{handlesSignals: "yes"},
		RunE:        func(c *cobra.Command, _ []string) error { return e.up(c, f) },
	}
	fs := c.Flags()
	fs.StringVar(&f.dir, "dir", "", "the installation's `folder`, which is created if it does not exist (default: $"+
		cli.DirVariable+")")
	fs.StringSliceVar(&f.engine, "engine", nil, "`URL` of an OpenAI-compatible server (repeat it for several), "+
		"tiny (the built-in model) or mock (default: [engine] of DIR/rollout.toml, else tiny)")
	fs.StringVar(&f.model, "model", "", "`name` of the model that the engine serves (default: ask the engine)")
	fs.StringVar(&f.listen, "listen", defaultListen, "`address` of the HTTP API, or off")
	cli.AddTLSFlags(fs, &f.encryption)
	fs.IntVar(&f.workers, "workers", 0, "`number` of worker processes; 0 runs one worker in this process")
	fs.StringVar(&f.joinListen, "join-listen", "", "`address` at which workers on other machines join, over mutual TLS: "+
		"see `rollout join-token` (default: none)")
	fs.BoolVar(&f.noWorkers, "no-workers", false, "run no worker on this machine: others join")
	cli.AddPluginFlags(fs, &f.plugins, &f.hotReload)
	fs.BoolVar(&f.once, "once", false, "exit when every run has ended, with code 1 if one did not succeed")
	f.settings = setFlag(c, "over DIR/rollout.toml, until up ends: a `setting` such as worker.in_flight=64")
	f.observe.AddFlags(fs)
	return c
}

// up opens the installation, starts it, and waits for a signal or, with --once, for the end of all runs.
func (e *Env) up(c *cobra.Command, f upFlags) (err error) {
	if err := needDir(c, f.dir); err != nil {
		return err
	}
	if f.workers < 0 {
		return usage(c, "--workers is negative")
	}
	if f.noWorkers && f.workers > 0 {
		return usage(c, "--no-workers and --workers exclude each other")
	}
	level := slog.LevelInfo
	if f.once {
		level = slog.LevelWarn // --once shows the progress instead
	}
	screen, above := e.upDisplay(f)
	log, err := above.logger(level)
	if err != nil {
		return err
	}
	ctx, untilSignal, shutdown := process.NotifyShutdown(c.Context(), 0)
	observer, closeObserver, err := f.observe.Open(ctx,
		setup.Environment{Stdout: above.Out, Clock: e.Clock, Log: log, Getenv: e.Getenv, Name: "up"})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeObserver()) }()
	o := installation.LocalOptions{Log: log, Observer: observer, Settings: *f.settings}
	if f.listen != noListen {
		o.Meter = meter.New()
		o.Observer.Meter = o.Meter
	}
	p, err := e.prepare(untilSignal, prepareOptions{dir: f.dir, engine: f.engine, model: f.model,
		elsewhere: f.noWorkers, plugins: f.plugins, local: o})
	if err != nil && untilSignal.Err() != nil && !f.once { // no run was in progress
		return nil
	}
	if err != nil {
		return interrupted(err)
	}
	defer func() { err = errors.Join(err, p.close()) }()
	listener, token, err := e.listener(ctx, c.Flags().Changed("listen"), f.listen, f.encryption, p, log)
	if err != nil {
		return err
	}
	worker, err := e.workerCommandLine(
		workerProcess{dir: f.dir, engine: p.deployment.Engine, model: f.model, level: level, observe: f.observe,
			set: *f.settings, plugins: f.plugins, reload: f.hotReload})
	if err != nil {
		return err
	}
	joining, err := e.joining(ctx, p, f.joinListen, *f.settings)
	if err != nil {
		return err
	}
	r := standalone.Start(ctx, standalone.Options{
		Join: joining, NoWorkers: f.noWorkers, Plugins: e.Plugins, HotReload: f.hotReload,
		Local: p.Local, Deployment: p.deployment, Secrets: p.secrets, Watch: true,
		Listen: listener, Token: token, Meter: o.Meter, Workers: f.workers, Worker: worker,
		WorkerOutput: e.workerOutput(screen),
	})
	if err := e.printUp(p, listener, joining, f); err != nil {
		return errors.Join(err, r.Stop())
	}
	if f.once {
		return e.untilEnded(ctx, p, r, shutdown)
	}
	defer e.drawUp(ctx, p, screen)()
	select {
	case <-shutdown:
	case <-ctx.Done():
	case <-r.Ended():
	}
	return r.Stop()
}

// printUp prints where to put prompts, where to find results, and where the API listens.
func (e *Env) printUp(p *prepared, at net.Listener, joining *standalone.Joining, f upFlags) error {
	if f.once {
		return nil
	}
	api := "no API"
	if at != nil {
		api = "API at " + listen.URL(at)
	}
	if joining != nil {
		api += ", workers join at " + joining.Listener.Addr().String()
	}
	return e.say("rollout is up: put prompts files (.jsonl) into %s, read %s (%s)",
		p.Dir+"/bucket/prompts", p.Dir+"/bucket/runs", api)
}

// prepared is an open installation that this process has locked, with its complete deployment.
type prepared struct {
	*installation.Local
	deployment config.Deployment
	secrets    secret.Store
	close      func() error
}

// prepareOptions say how to open an installation for the process that runs it.
type prepareOptions struct {
	dir        string
	engine     []string // overrides the config's engine
	model      string   // "" asks the engine
	elsewhere  bool     // the engines are other machines'
	plugins    []string // paths besides those of the config
	local      installation.LocalOptions
	beforeOpen func() error // called under the lock, before anything is read; may be nil
}

// prepare locks and opens an installation for the process that runs it.
func (e *Env) prepare(ctx context.Context, po prepareOptions) (_ *prepared, err error) {
	o := po.local
	o.Create, o.CheckState, o.Source, o.Clock = true, true, "up", e.Clock
	release, err := installation.AcquireLock(po.dir)
	if err != nil {
		return nil, err
	}
	if po.beforeOpen != nil {
		if err := po.beforeOpen(); err != nil {
			return nil, errors.Join(err, release())
		}
	}
	l, closeLocal, err := installation.OpenLocal(ctx, po.dir, o)
	if err != nil {
		return nil, errors.Join(err, release())
	}
	releaseBucket, err := installation.LockBucket(po.dir)
	if err != nil {
		return nil, errors.Join(err, closeLocal(), release())
	}
	closeAll := func() error { return errors.Join(closeLocal(), releaseBucket(), release()) }
	d := l.Deployment
	d.Engine = d.Engine.WithURLs(po.engine)
	if d, err = plugin.Resolve(d, po.dir, po.plugins); err == nil {
		err = d.Check()
	}
	if err != nil {
		return nil, errors.Join(err, closeAll())
	}
	secrets := machine.EnvSecrets(append([]string{listen.TokenSecret}, d.Secrets...), os.LookupEnv)
	if po.elsewhere {
		d, err = poolsElsewhere(d, po.model)
	} else {
		d, err = process.ResolveEngine(ctx, d, po.model, secrets, o.Log)
	}
	if err != nil {
		return nil, errors.Join(err, closeAll())
	}
	l.Deployment = d
	return &prepared{Local: l, deployment: d, secrets: secrets, close: closeAll}, nil
}

// listener opens the API's port. If the default port is in use by another installation, it returns no listener and no
// error, because all commands also work without the API. explicit says that the user chose the address.
func (e *Env) listener(
	ctx context.Context, explicit bool, addr string, encryption listen.TLS, p *prepared, log *slog.Logger,
) (net.Listener, secret.Value, error) {
	if addr == noListen || addr == "" {
		return nil, secret.Value{}, nil
	}
	encryption.Authority = func() (*tls.Config, error) {
		a, err := e.authority(p.Dir)
		if err != nil {
			return nil, err
		}
		return a.ServerConfig(e.Clock), nil
	}
	l, token, err := listen.Open(ctx, addr, p.secrets, encryption)
	if !fault.Is(err, fault.Unavailable) {
		return l, token, err
	}
	if explicit {
		return nil, token, fault.WithKind(fault.Invalid, err, "--listen")
	}
	log.WarnContext(ctx, "no API: its port is taken", "address", addr, "error", err)
	return nil, token, nil
}

// poolsElsewhere completes the pools of an installation whose workers and engines are on other
// machines: there is no engine here that could be asked for its model.
func poolsElsewhere(d config.Deployment, model string) (config.Deployment, error) {
	if len(d.InferPools()) == 0 && model == "" {
		return d, &fault.Error{Kind: fault.Invalid, Err: errors.New("--no-workers needs the model that the workers serve"),
			Remedy: "name it with --model, or declare a [[pool]] in rollout.toml"}
	}
	if len(d.InferPools()) == 0 {
		d.Pools = append([]config.Pool{{Name: config.DefaultPool, Model: model}}, d.Pools...)
	}
	b, err := weights.Shipped()
	if err != nil {
		return d, err
	}
	d.Pools = slices.Clone(d.Pools)
	for i, p := range d.Pools {
		if p.Engine == "" && p.Model == b.Name {
			d.Pools[i].Revision = b.Digest
		}
	}
	return d, nil
}
