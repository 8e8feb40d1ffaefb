package command

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"time"

	"github.com/spf13/cobra"

	"rollout/gpuworker/process"
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

// defaultListen is where the API listens if nobody says.
const defaultListen = "127.0.0.1:8787"

// noListen is for no API.
const noListen = "off"

// upFlags are the arguments of up.
type upFlags struct {
	dir, model, listen string
	engine             []string
	workers            int
	once               bool
	watch              setup.Options
}

func upCommand(e *Env) *cobra.Command {
	var f upFlags
	c := &cobra.Command{
		Use:   "up",
		Short: "Run the whole product over a folder: its bucket, its functions, its workers",
		Long: "Takes up every prompts file in DIR/bucket/prompts, also those put there later, and writes each run's completions to DIR/bucket/runs.\n\n" +
			"The first Ctrl-C drains the workers; what they hold goes on where it stopped when up is started again.",
		Args:        arguments(0),
		Annotations: map[string]string{handlesSignals: "yes"},
		RunE:        func(c *cobra.Command, _ []string) error { return e.up(c, f) },
	}
	fs := c.Flags()
	fs.StringVar(&f.dir, "dir", "", "the installation's `folder`; it is made if it is not there")
	fs.StringSliceVar(&f.engine, "engine", nil, "`URL` of an OpenAI-compatible server, may be given for each of several, tiny (the model that is built in) or mock; [engine] of DIR/rollout.toml if left out, else tiny")
	fs.StringVar(&f.model, "model", "", "`name` of the model that the engine serves; the engine is asked if empty")
	fs.StringVar(&f.listen, "listen", defaultListen, "`address` of the HTTP API; off for none")
	fs.IntVar(&f.workers, "workers", 0, "worker processes; 0 is one worker in this process")
	fs.BoolVar(&f.once, "once", false, "end when every run has ended; exit with 1 if one of them did not end well")
	f.watch.AddFlags(fs)
	return c
}

func (e *Env) up(c *cobra.Command, f upFlags) (err error) {
	if err := needDir(c, f.dir); err != nil {
		return err
	}
	if f.workers < 0 {
		return usage(c, "--workers is negative")
	}
	level := slog.LevelInfo
	if f.once {
		level = slog.LevelWarn // progress is shown instead
	}
	log, err := e.logger(level)
	if err != nil {
		return err
	}
	ctx, asked, leave := process.NotifyShutdown(c.Context(), 0)
	watch, closeWatch, err := f.watch.Open(ctx, setup.Environment{Stdout: e.Out, Clock: e.Clock, Log: log, Getenv: e.Getenv, Name: "up"})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeWatch()) }()
	o := installation.LocalOptions{Log: log, Observer: watch}
	if f.listen != noListen {
		o.Meter = meter.New()
		o.Observer.Meter = o.Meter
	}
	p, err := e.prepare(asked, f.dir, f.engine, f.model, o, func() error { return nil })
	if err != nil && asked.Err() != nil && !f.once { // nothing was under way
		return nil
	}
	if err != nil {
		return interrupted(err)
	}
	defer func() { err = errors.Join(err, p.close()) }()
	listener, token, err := e.listener(ctx, c.Flags().Changed("listen"), f.listen, p, log)
	if err != nil {
		return err
	}
	line, err := workerLine(f.dir, e, level, p.deployment.Engine, f.model, f.watch)
	if err != nil {
		return err
	}
	s := standalone.Start(ctx, standalone.Options{Local: p.Local, Deployment: p.deployment, Secrets: p.secrets, Watch: true,
		Listen: listener, Token: token, Meter: o.Meter, Workers: f.workers, Worker: line})
	if err := e.sayUp(p, listener, f); err != nil {
		return errors.Join(err, s.Stop())
	}
	if f.once {
		return e.untilEnded(ctx, p, s, leave)
	}
	select {
	case <-leave:
	case <-ctx.Done():
	case <-s.Ended():
	}
	return s.Stop()
}

// sayUp tells where everything is.
func (e *Env) sayUp(p *prepared, at net.Listener, f upFlags) error {
	if f.once {
		return nil
	}
	where := "no API"
	if at != nil {
		where = "API at http://" + at.Addr().String()
	}
	_, err := fmt.Fprintf(e.Err, "rollout is up: put prompts files (.jsonl) into %s, read %s (%s)\n",
		p.Dir+"/bucket/prompts", p.Dir+"/bucket/runs", where)
	return err
}

// prepared is an installation that this process alone may run, with its
// deployment completed.
type prepared struct {
	*installation.Local
	deployment config.Deployment
	secrets    secret.Store
	close      func() error
}

// prepare opens an installation for the process that runs it; first is called
// once no other process can be that one, and before anything is read.
func (e *Env) prepare(ctx context.Context, dir string, engine []string, model string, o installation.LocalOptions, first func() error) (_ *prepared, err error) {
	o.Create, o.CheckState, o.Source, o.Clock = true, true, "up", e.Clock
	release, err := installation.AcquireLock(dir)
	if err != nil {
		return nil, err
	}
	if err := first(); err != nil {
		return nil, errors.Join(err, release())
	}
	l, closeLocal, err := installation.OpenLocal(ctx, dir, o)
	if err != nil {
		return nil, errors.Join(err, release())
	}
	closeAll := func() error { return errors.Join(closeLocal(), release()) }
	d := l.Deployment
	d.Engine = d.Engine.WithURLs(engine)
	if err := d.Check(); err != nil {
		return nil, errors.Join(err, closeAll())
	}
	secrets := machine.EnvSecrets(append([]string{listen.TokenSecret}, d.Secrets...), os.LookupEnv)
	d, err = process.ResolveEngine(ctx, d, model, secrets, o.Log)
	if err != nil {
		return nil, errors.Join(err, closeAll())
	}
	l.Deployment = d
	return &prepared{Local: l, deployment: d, secrets: secrets, close: closeAll}, nil
}

// listener opens the API's port. The default one may be taken by another
// installation: then there is no API, as all commands work on the folder.
func (e *Env) listener(ctx context.Context, explicit bool, addr string, p *prepared, log *slog.Logger) (net.Listener, secret.Value, error) {
	if addr == noListen || addr == "" {
		return nil, secret.Value{}, nil
	}
	l, token, err := listen.Open(ctx, addr, p.secrets)
	if !fault.Is(err, fault.Unavailable) {
		return l, token, err
	}
	if explicit {
		return nil, token, fault.WithKind(fault.Invalid, err, "--listen")
	}
	log.WarnContext(ctx, "no API: its port is taken", "address", addr, "error", err)
	return nil, token, nil
}

// look is how often --once looks for runs.
const look = 100 * time.Millisecond
