// Package cli is the command line of a worker process, for the binary
// gpuworker and for the workers that `rollout up` starts.
//
// It opens a laptop's installation and hands its ports to package process. It
// decides nothing about work.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"rollout/gpuworker/process"
	"rollout/shared/clock"
	"rollout/shared/config"
	"rollout/shared/embedded"
	"rollout/shared/embedded/local"
	"rollout/shared/fault"
	"rollout/shared/listen"
	"rollout/shared/observe"
	"rollout/shared/observe/meter"
	"rollout/shared/observe/setup"
)

// flags are a worker's arguments.
type flags struct {
	dir, model, pool    string
	engine              []string
	parent              int
	inFlight            int
	logLevel, logFormat string
	metrics             string
	watch               setup.Options
}

// Main runs a worker until it has drained, and returns its exit code: 0 for an
// orderly end, 2 for wrong arguments or config, 3 for a damaged state, 1 else.
func Main(ctx context.Context, name string, args []string, stderr io.Writer) (int, error) {
	c := Command(name)
	c.SetArgs(args)
	c.SetErr(stderr)
	err := c.ExecuteContext(ctx)
	switch {
	case err == nil:
		return 0, nil
	case fault.Is(err, fault.Invalid):
		return 2, err
	case fault.Is(err, fault.Corrupt):
		return 3, err
	}
	return 1, err
}

// Command is the worker as a command of some program.
func Command(name string) *cobra.Command {
	var f flags
	c := &cobra.Command{
		Use:           name,
		Short:         "Answer the work of one pool with one engine",
		Args:          cobra.NoArgs,
		SilenceErrors: true,
		SilenceUsage:  true,
		RunE:          func(c *cobra.Command, _ []string) error { return run(c.Context(), f, c.OutOrStdout(), c.ErrOrStderr()) },
	}
	c.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		return &fault.Error{Kind: fault.Invalid, Err: err, Remedy: "see " + c.CommandPath() + " --help"}
	})
	fs := c.Flags()
	fs.StringVar(&f.dir, "dir", "", "the installation's `folder`, as given to rollout up")
	fs.StringSliceVar(&f.engine, "engine", nil, "`URL` of an OpenAI-compatible server, may be given for each of several, tiny or mock; [engine] of the config if left out, else tiny")
	fs.StringVar(&f.model, "model", "", "`name` of the model that the engine serves; the engine is asked if empty")
	fs.StringVar(&f.pool, "pool", "", "the pool to work for; the installation's only one if empty")
	fs.IntVar(&f.inFlight, "in-flight", 0, "requests at once; in_flight of the config if 0, which finds it by trying if it is 0, too")
	fs.IntVar(&f.parent, "parent", 0, "drain when this process is not the parent any more; 0 is never")
	f.watch.Flags(fs)
	fs.StringVar(&f.metrics, "metrics", "", "`address` to answer /metrics, /healthz and /readyz at; none if empty")
	fs.StringVar(&f.logLevel, "log-level", "info", "debug, info, warn or error")
	fs.StringVar(&f.logFormat, "log-format", string(observe.Text), "text or json")
	return c
}

func run(ctx context.Context, f flags, out, errOut io.Writer) (err error) {
	log, err := logger(f, errOut)
	if err != nil {
		return err
	}
	if f.dir == "" {
		return &fault.Error{Kind: fault.Invalid, Err: errors.New("--dir is missing"), Remedy: "name the folder that `rollout up` runs in"}
	}
	watch, closeWatch, err := f.watch.Open(ctx, setup.World{Stdout: out, Clock: clock.System{}, Log: log, Getenv: os.Getenv, Name: "worker"})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeWatch()) }()
	o := local.Options{Log: log, Create: true, Source: "worker", Watch: watch}
	if f.metrics != "" {
		o.Meter = meter.New()
		o.Watch.Meter = o.Meter
	}
	l, closeAll, err := local.Open(ctx, f.dir, o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeAll()) }()
	d := l.Deployment
	d.Engine = d.Engine.At(f.engine)
	if f.inFlight > 0 {
		d.Worker.InFlight = f.inFlight
	}
	if err := d.Check(); err != nil {
		return err
	}
	secrets := embedded.EnvSecrets(append([]string{listen.TokenSecret}, d.Secrets...), os.LookupEnv)
	endVitals, err := serveVitals(ctx, f.metrics, l, o.Meter, secrets)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, endVitals()) }()
	ctx, unguard := l.State.Guard(ctx)
	defer unguard()
	ctx, asked, leave := process.Leave(ctx, f.parent)
	if gym, _ := d.TrainPool(); f.pool == "" || f.pool != gym.Name { // who trains needs no engine
		d, err = process.Serve(asked, d, f.model, secrets, log)
	}
	if err != nil && asked.Err() != nil { // nothing was under way
		return nil
	}
	if err != nil {
		return err
	}
	pool, err := choosePool(d, f.pool)
	if err != nil {
		return err
	}
	err = process.Run(ctx, process.Options{Ports: l.Ports, Deployment: d, Pool: pool, Secrets: secrets, Leave: leave, Machine: Machine(f.dir, log), Scratch: Scratch(f.dir),
		Patient: f.parent != 0}) // which would start it again and again
	if damage := l.State.Damage(); damage != nil { // it ended the worker
		return damage
	}
	return err
}

// Machine is the machine of an installation in dir; a file named notice in its
// state stands for a preemption notice.
func Machine(dir string, log *slog.Logger) *embedded.Machine {
	return embedded.NewMachine(embedded.MachineOptions{Probe: embedded.ProbeCommand(), NoticePath: filepath.Join(local.StateDir(dir), "notice"), Logger: log})
}

// Scratch is the folder of an installation for files on their way.
func Scratch(dir string) string { return filepath.Join(local.StateDir(dir), "scratch") }

func choosePool(d config.Deployment, name string) (string, error) {
	answering := d.Answering()
	if name == "" && len(answering) == 1 {
		return answering[0].Name, nil
	}
	if gym, _ := d.TrainPool(); gym.Name == name {
		return name, nil
	}
	for _, p := range answering {
		if p.Name == name {
			return name, nil
		}
	}
	if name == "" {
		return "", &fault.Error{Kind: fault.Invalid, Err: fmt.Errorf("there are %d pools", len(answering)), Remedy: "name one with --pool: " + poolNames(d)}
	}
	return "", &fault.Error{Kind: fault.Invalid, Err: fmt.Errorf("there is no pool %q", name), Remedy: "use one of: " + poolNames(d)}
}

func poolNames(d config.Deployment) string {
	names := make([]string, len(d.Pools))
	for i, p := range d.Pools {
		names[i] = p.Name
	}
	return strings.Join(names, ", ")
}

func logger(f flags, w io.Writer) (*slog.Logger, error) {
	format, err := observe.ParseFormat(f.logFormat)
	if err != nil {
		return nil, fault.Wrap(err, "--log-format")
	}
	level, err := observe.ParseLevel(f.logLevel)
	if err != nil {
		return nil, fault.Wrap(err, "--log-level")
	}
	return observe.NewLogger(w, format, level), nil
}
