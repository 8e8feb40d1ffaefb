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

	"rollout/functions/api"
	"rollout/gpuworker/process"
	"rollout/scripts/rollout/stack"
	"rollout/shared/config"
	"rollout/shared/embedded"
	"rollout/shared/embedded/local"
	"rollout/shared/fault"
	"rollout/shared/observe"
	"rollout/shared/observe/setup"
	"rollout/shared/secret"
)

// defaultListen is where the API listens if nobody says.
const defaultListen = "127.0.0.1:8787"

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
		Annotations: map[string]string{drains: "yes"},
		RunE:        func(c *cobra.Command, _ []string) error { return e.up(c, f) },
	}
	fs := c.Flags()
	fs.StringVar(&f.dir, "dir", "", "the installation's `folder`; it is made if it is not there")
	fs.StringSliceVar(&f.engine, "engine", nil, "`URL` of an OpenAI-compatible server, may be given for each of several, or mock; [engine] of DIR/rollout.toml if left out")
	fs.StringVar(&f.model, "model", "", "`name` of the model that the engine serves; the engine is asked if empty")
	fs.StringVar(&f.listen, "listen", defaultListen, "`address` of the HTTP API; off for none")
	fs.IntVar(&f.workers, "workers", 0, "worker processes; 0 is one worker in this process")
	fs.BoolVar(&f.once, "once", false, "end when every run has ended; exit with 1 if one of them did not end well")
	f.watch.Flags(fs)
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
	ctx, leave := process.Leave(c.Context(), 0)
	watch, closeWatch, err := f.watch.Open(e.Out, e.Clock, log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeWatch()) }()
	p, err := e.prepare(ctx, f.dir, f.engine, f.model, log, watch, func() error { return nil })
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.close()) }()
	listen, token, err := e.listener(ctx, c.Flags().Changed("listen"), f.listen, p, log)
	if err != nil {
		return err
	}
	line, err := workerLine(f.dir, e, level, p.deployment.Engine, f.model, f.watch)
	if err != nil {
		return err
	}
	s := stack.Start(ctx, stack.Options{Local: p.Local, Deployment: p.deployment, Secrets: p.secrets, Watch: true,
		Listen: listen, Token: token, Workers: f.workers, Worker: line})
	if err := e.sayUp(p, listen, f); err != nil {
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
func (e *Env) sayUp(p *prepared, listen net.Listener, f upFlags) error {
	if f.once {
		return nil
	}
	where := "no API"
	if listen != nil {
		where = "API at http://" + listen.Addr().String()
	}
	_, err := fmt.Fprintf(e.Err, "rollout is up: put prompts files (.jsonl) into %s, read %s (%s)\n",
		p.Dir+"/bucket/prompts", p.Dir+"/bucket/runs", where)
	return err
}

// prepared is an installation that this process alone may run, with its
// deployment completed.
type prepared struct {
	*local.Local
	deployment config.Deployment
	secrets    secret.Store
	close      func() error
}

// prepare opens an installation for the process that runs it; first is called
// once no other process can be that one, and before anything is read.
func (e *Env) prepare(ctx context.Context, dir string, engine []string, model string, log *slog.Logger, watch observe.Watch, first func() error) (_ *prepared, err error) {
	release, err := local.Exclusive(dir)
	if err != nil {
		return nil, err
	}
	if err := first(); err != nil {
		return nil, errors.Join(err, release())
	}
	l, closeLocal, err := local.Open(ctx, dir, local.Options{Create: true, Check: true, Source: "up", Log: log, Clock: e.Clock, Watch: watch})
	if err != nil {
		return nil, errors.Join(err, release())
	}
	closeAll := func() error { return errors.Join(closeLocal(), release()) }
	d := l.Deployment
	d.Engine = d.Engine.At(engine)
	if err := d.Check(); err != nil {
		return nil, errors.Join(err, closeAll())
	}
	secrets := embedded.EnvSecrets(append([]string{api.TokenSecret}, d.Secrets...), os.LookupEnv)
	d, err = process.Serve(ctx, d, model, secrets, log)
	if err != nil {
		return nil, errors.Join(err, closeAll())
	}
	l.Deployment = d
	return &prepared{Local: l, deployment: d, secrets: secrets, close: closeAll}, nil
}

// listener opens the API's port. The default one may be taken by another
// installation: then there is no API, as all commands work on the folder.
func (e *Env) listener(ctx context.Context, explicit bool, addr string, p *prepared, log *slog.Logger) (net.Listener, secret.Value, error) {
	if addr == "off" || addr == "" {
		return nil, secret.Value{}, nil
	}
	token, err := p.secrets.Get(ctx, api.TokenSecret)
	if err != nil && !fault.Is(err, fault.NotFound) {
		return nil, token, err
	}
	if err := api.CheckListen(addr, err == nil); err != nil {
		return nil, token, err
	}
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", addr)
	if err == nil {
		return l, token, nil
	}
	if explicit {
		return nil, token, fault.As(fault.Invalid, err, "--listen")
	}
	log.WarnContext(ctx, "no API: its port is taken", "address", addr, "error", err)
	return nil, token, nil
}

// look is how often --once looks for runs.
const look = 100 * time.Millisecond
