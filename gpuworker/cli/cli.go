// Package cli is the command line of a worker process, for the binary
// gpuworker and for the workers that `rollout up` starts.
//
// It opens an installation in a folder or in a cloud and passes its ports to
// package process. For several GPUs it starts one worker process for each. It gives
// up a rented machine that its workers have left, and decides nothing about work.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"rollout/gpuworker/machine"
	"rollout/gpuworker/modelcache"
	"rollout/gpuworker/plugin"
	"rollout/gpuworker/process"
	"rollout/gpuworker/supervise"
	"rollout/shared/clock"
	"rollout/shared/config"
	"rollout/shared/fault"
	"rollout/shared/installation"
	"rollout/shared/listen"
	"rollout/shared/observe"
	"rollout/shared/observe/meter"
	"rollout/shared/observe/setup"
)

// DirVariable is the environment variable that names the folder of commands without --dir.
const DirVariable = "ROLLOUT_DIR"

// flags are a worker's arguments.
type flags struct {
	dir, model, pool    string
	engine, settings    []string
	cloud, config       string
	join, joinDir       string
	gpus                []int
	perServer           int
	gpu, parent         int
	giveUp, bootStage   string
	rented              bool
	inFlight            int
	logLevel, logFormat string
	metrics             string
	encryption          listen.TLS // of metrics
	watch               setup.Options
	plugins             []string
	hotReload           bool
	builtins            plugin.Registry
}

// Program is what a program brings to its worker.
type Program struct {
	Name   string
	Stderr io.Writer
	// Plugins are those that are compiled into it; nil has none.
	Plugins plugin.Registry
}

// Main runs a worker until it has drained, and returns its exit code: 0 after an
// orderly end, 2 for wrong arguments or config, 3 for a damaged state, 4 if the installation that it
// joined refuses it, else 1. The
// workers of --gpus have further codes; see ended.
func Main(ctx context.Context, p Program, args []string) (int, error) {
	c := Command(p.Name, p.Plugins)
	c.SetArgs(args)
	c.SetErr(p.Stderr)
	err := c.ExecuteContext(ctx)
	var how ended
	switch {
	case err == nil:
		return 0, nil
	case errors.As(err, &how):
		return how.code(), nil
	case fault.Is(err, fault.Invalid):
		return supervise.ExitUsage, err
	case fault.Is(err, fault.Corrupt):
		return supervise.ExitDamaged, err
	case errors.As(err, new(refusedError)):
		return exitRefused, err
	}
	return 1, err
}

// Command returns the worker as a command of a program, with the plugins that are compiled into it.
func Command(name string, builtins plugin.Registry) *cobra.Command {
	f := flags{builtins: builtins}
	c := &cobra.Command{
		Use:           name,
		Short:         "Answer the work of one pool with one engine",
		Args:          cobra.NoArgs,
		SilenceErrors: true,
		SilenceUsage:  true,
		RunE: func(c *cobra.Command, _ []string) error {
			return run(c.Context(), f, c.OutOrStdout(), c.ErrOrStderr())
		},
	}
	c.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		return &fault.Error{Kind: fault.Invalid, Err: err, Remedy: "see " + c.CommandPath() + " --help"}
	})
	fs := c.Flags()
	fs.StringVar(&f.dir, "dir", "", "the installation's `folder`, as given to rollout up; default: the variable "+
		DirVariable)
	fs.StringSliceVar(&f.engine, "engine", nil, "`URL` of an OpenAI-compatible server (repeat it for several servers), "+
		"tiny or mock; default: [engine] of the config, else tiny")
	fs.StringArrayVar(&f.settings, "set", nil,
		"over the config of --dir: a `setting` such as worker.in_flight=64 (TOML; repeatable)")
	AddPluginFlags(fs, &f.plugins, &f.hotReload)
	fs.StringVar(&f.model, "model", "", "`name` of the model that the engine serves; default: what the engine says")
	fs.StringVar(&f.pool, "pool", "", "the pool to work for; default: the only pool of the installation")
	fs.StringVar(&f.cloud, "cloud", "",
		"work for an installation in this `cloud` ("+installation.ProviderNames()+") instead of one in --dir")
	fs.StringVar(&f.config, "config", "",
		"the `file` with the config of that installation; default: the variable "+ConfigVariable)
	fs.StringVar(&f.join, "join", "", "work for the installation whose `rollout up --join-listen` is at this `address`, "+
		"instead of one in --dir; the first time with a token of `rollout join-token` in the variable "+JoinTokenVariable)
	fs.StringVar(&f.joinDir, "join-dir", "",
		"the `folder` that keeps this worker's certificate for --join (default: one of the user's cache)")
	fs.IntSliceVar(&f.gpus, "gpus", nil,
		"start one worker process for each of these GPUs (`numbers`), or for as many as --gpus-per-server says, each with "+
			"its own --engine")
	fs.IntVar(&f.perServer, "gpus-per-server", 1, "how many of --gpus each --engine uses together: one worker process "+
		"is started for that many (`number`)")
	fs.IntVar(&f.gpu, "gpu", noGPU, "the first one of --gpus that this process is for")
	_ = fs.MarkHidden("gpu") // the flag exists
	fs.BoolVar(&f.rented, "rented", false, "this machine was started for a fleet, unless its metadata say otherwise")
	_ = fs.MarkHidden("rented")
	fs.StringVar(&f.giveUp, "give-up", "", "record the `reason` why workers can't work on this machine, and end")
	_ = fs.MarkHidden("give-up") // for a machine's boot script
	fs.StringVar(&f.bootStage, "boot-stage", "", "record the `stage` of this machine's boot, and end")
	_ = fs.MarkHidden("boot-stage") // for a machine's boot script
	fs.IntVar(&f.inFlight, "in-flight", 0, "requests in flight; 0 takes in_flight of the config, which may adapt it")
	fs.IntVar(&f.parent, "parent", 0, "drain when the process of this id is no longer the parent; 0 never does")
	f.watch.AddFlags(fs)
	ofMachine := machine.Command()
	ofMachine.AddCommand(modelcache.Commands(openBucket)...)
	c.AddCommand(ofMachine)
	fs.StringVar(&f.metrics, "metrics", "", "`address` that serves /metrics, /healthz and /readyz; default: none")
	AddTLSFlags(fs, &f.encryption)
	fs.StringVar(&f.logLevel, "log-level", "info", "debug, info, warn or error")
	fs.StringVar(&f.logFormat, "log-format", string(observe.Text), "text or json")
	return c
}

func run(ctx context.Context, f flags, out, errOut io.Writer) (err error) {
	if f.dir == "" && f.cloud == "" && f.join == "" {
		f.dir = os.Getenv(DirVariable)
	}
	log, err := logger(f, errOut)
	if err != nil {
		return err
	}
	watch, closeWatch, err := f.watch.Open(ctx,
		setup.Environment{Stdout: out, Clock: clock.System{}, Log: log, Getenv: os.Getenv, Name: "worker"})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeWatch()) }()
	o := openOptions{log: log, watch: watch}
	if f.metrics != "" {
		o.meter = meter.New()
		o.watch.Meter = o.meter
	}
	s, err := f.open(ctx, o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	if f.giveUp != "" {
		return f.reportUnusable(ctx, s, f.giveUp)
	}
	if f.bootStage != "" {
		return f.reportBoot(ctx, s)
	}
	var end process.ExitReason
	if f.gpu == noGPU && len(f.gpus) > 0 {
		end, err = f.runPerServer(ctx, s)
	} else {
		end, err = f.work(ctx, s, o.meter)
	}
	switch {
	case err != nil:
		return err
	case f.gpu != noGPU && end != process.Requested: // the process that started it decides about the machine
		return ended(end)
	}
	return f.decommission(ctx, s, end)
}

// work runs one worker.
func (f flags) work(ctx context.Context, s *workplace, m *meter.Meter) (end process.ExitReason, err error) {
	d := s.deployment
	d.Engine = d.Engine.WithURLs(f.engine)
	if f.pool == "" {
		f.pool = s.onlyPool
	}
	if f.gpu != noGPU {
		groups, err := groupsOf(f.gpus, f.perServer)
		if err != nil {
			return "", err
		}
		servers, own, err := engineOf(d.Engine.Servers(), groups, f.gpu)
		if err != nil {
			return "", err
		}
		d.Engine = d.Engine.WithURLs(servers)
		s.machine = ownGPUs{s.machine, own}
	}
	if d, err = f.withPlugins(d); err != nil {
		return "", err
	}
	if err := d.Check(); err != nil {
		return "", err
	}
	f.encryption.Authority = s.serverTLS
	endProbes, err := serveProbes(ctx, f.metrics, f.encryption, s, m)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, endProbes()) }()
	ctx, unguard := s.guard(ctx)
	defer unguard()
	ctx, asked, leave := process.NotifyShutdown(ctx, f.parent)
	if training, _ := d.TrainPool(); f.pool == "" || f.pool != training.Name { // training needs no engine
		d, err = process.ResolveEngine(asked, d, f.model, s.secrets, s.ports.Log)
	}
	if err != nil && asked.Err() != nil { // stopped before any work began
		return process.Requested, nil
	}
	if err != nil {
		return "", err
	}
	pool, err := choosePool(d, f.pool)
	if err != nil {
		return "", err
	}
	if d = d.ForPool(pool); f.inFlight != 0 {
		d.Worker.InFlight = f.inFlight
	}
	if err := d.Check(); err != nil {
		return "", err
	}
	end, err = process.Run(ctx, process.Options{
		Ports: s.ports, Deployment: d, Capabilities: s.capabilities, Pool: pool, Secrets: s.secrets, Shutdown: leave,
		Machine: s.machine, SharedBy: max(1, len(f.gpus)/max(1, f.perServer)), Scratch: s.scratch,
		Sockets: s.sockets, Private: s.private,
		Plugins: f.builtins, HotReload: f.reloads(ctx, s),
		Fresh:             s.fresh(os.Getenv(runtimeVariable), f.gpu),
		IdleTimeout:       s.idle(ctx),
		RetryRegistration: f.parent != 0, // a supervisor would restart it at once
	})
	if damage := s.damage(); damage != nil { // the damage ended the worker
		return "", damage
	}
	return end, err
}

func choosePool(d config.Deployment, name string) (string, error) {
	answering := d.InferPools()
	if name == "" && len(answering) == 1 {
		return answering[0].Name, nil
	}
	if training, _ := d.TrainPool(); training.Name == name {
		return name, nil
	}
	for _, p := range answering {
		if p.Name == name {
			return name, nil
		}
	}
	if name == "" {
		return "", &fault.Error{Kind: fault.Invalid, Err: fmt.Errorf("the installation has %d pools", len(answering)),
			Remedy: "name one with --pool: " + poolNames(d)}
	}
	return "", &fault.Error{Kind: fault.Invalid, Err: fmt.Errorf("the installation has no pool %q", name),
		Remedy: "use one of: " + poolNames(d)}
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
