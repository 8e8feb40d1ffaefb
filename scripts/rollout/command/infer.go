package command

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path"
	"path/filepath"

	"github.com/spf13/cobra"

	"rollout/functions/api"
	"rollout/gpuworker/plugin"
	"rollout/gpuworker/process"
	"rollout/scripts/rollout/batch"
	"rollout/scripts/rollout/progress"
	"rollout/scripts/rollout/standalone"
	"rollout/shared/cloud"
	"rollout/shared/config"
	"rollout/shared/core/identity"
	"rollout/shared/core/run"
	"rollout/shared/fault"
	"rollout/shared/installation"
	"rollout/shared/observe/setup"
)

// inferFlags are the flags of infer batch.
type inferFlags struct {
	config, resume string
	engine         []string
	settings       *[]string // of --set
	workers        int
	dryRun, json   bool
	observe        setup.Options
}

func inferCommand(e *Env) *cobra.Command {
	parent := &cobra.Command{
		Use:   "infer",
		Short: "Answer prompts files without an installation",
		Args:  arguments(0),
		RunE:  func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	var f inferFlags
	c := &cobra.Command{
		Use:   "batch",
		Short: "Answer every prompt of the files that a config names, or continue an interrupted run",
		Long: "Answers every prompt of the files that match input.glob, and writes completions.jsonl, errors.jsonl and\n" +
			"summary.json into output.dir.\n\n" +
			"The run id is --resume, else the id in the file run-id in output.dir, else a new id that is written there.\n" +
			"Start the same command again to continue an interrupted run where it stopped.",
		Args:        arguments(0),
		Annotations: map[string]string{handlesSignals: "yes"},
		RunE:        func(c *cobra.Command, _ []string) error { return e.infer(c, f) },
	}
	f.settings = setFlag(c, "over the config: a `setting` such as sampling.max_tokens=800")
	fs := c.Flags()
	fs.StringVar(&f.config, "config", "", "the batch's config `file`")
	fs.StringVar(&f.resume, "resume", "", "the id of the `run` to continue")
	fs.StringSliceVar(&f.engine, "engine", nil, "`URL` of an OpenAI-compatible server (repeat it for several), "+
		"tiny (the built-in model) or mock (default: [engine] of the config, else tiny)")
	fs.IntVar(&f.workers, "workers", 0, "`number` of worker processes (default: workers.count of the config)")
	fs.BoolVar(&f.dryRun, "dry-run", false, dryRunUsage)
	fs.BoolVar(&f.json, "json", false, "with --dry-run, print the result as one JSON object")
	f.observe.AddFlags(fs)
	parent.AddCommand(c)
	return parent
}

func (e *Env) infer(c *cobra.Command, f inferFlags) error {
	if f.config == "" {
		return usage(c, "--config is missing")
	}
	if f.json && !f.dryRun {
		return usage(c, "--json prints what --dry-run finds: use both")
	}
	cfg, err := e.inferConfig(c, f)
	if err != nil {
		return err
	}
	files, err := batch.FindInputs(cfg.Input.Glob, cfg.Output.Dir)
	if err != nil {
		return err
	}
	if f.dryRun {
		d := dryRun{Env: e, run: cfg.Run(), engine: cfg.Engine, files: files, asJSON: f.json,
			what: fmt.Sprintf(" workers=%d", cfg.Workers.Count)}
		log, err := e.logger(slog.LevelError)
		if err != nil {
			return err
		}
		err = checkGraders(config.Deployment{Graders: cfg.Graders, Plugins: cfg.Plugins, Engine: cfg.Engine}, d.run)
		if err != nil {
			return err
		}
		d.servers, err = e.serversOf(c.Context(), config.Deployment{Engine: cfg.Engine}, d.run, cfg.Secrets(), log)
		if err != nil {
			return err
		}
		return d.prompts(c.Context())
	}
	if len(cfg.Engine.Servers()) == 0 {
		if cfg.Model.URI != config.ModelTiny {
			return process.NoEngine("the model " + cfg.Model.URI)
		}
		cfg.Engine = cfg.Engine.WithURLs([]string{config.EngineTiny})
	}
	return e.inferRun(c, f, cfg, files)
}

// inferConfig reads the config and applies the flags to it.
func (e *Env) inferConfig(c *cobra.Command, f inferFlags) (config.Infer, error) {
	src, err := installation.ReadConfig(f.config)
	if err != nil {
		return config.Infer{}, &fault.Error{Kind: fault.Invalid, Op: "--config", Err: err,
			Remedy: "name the batch's config; see examples/batch.toml"}
	}
	cfg, err := config.ParseInfer(f.config, src)
	if err != nil {
		return cfg, err
	}
	if cfg, err = cfg.Set(*f.settings); err != nil {
		return cfg, err
	}
	if c.Flags().Changed("workers") {
		cfg.Workers.Count = f.workers
	}
	cfg.Engine = cfg.Engine.WithURLs(f.engine)
	here, err := plugin.Resolve(config.Deployment{Plugins: cfg.Plugins}, ".", nil)
	if err != nil {
		return cfg, err
	}
	cfg.Plugins = here.Plugins
	return cfg, cfg.Check()
}

// inferRun starts or continues the run and waits for its end.
func (e *Env) inferRun(c *cobra.Command, f inferFlags, cfg config.Infer, files []string) (err error) {
	log, err := e.logger(slog.LevelWarn)
	if err != nil {
		return err
	}
	var id identity.RunID
	dir := cfg.StateDir()
	ctx, untilSignal, shutdown := process.NotifyShutdown(c.Context(), 0)
	observer, closeObserver, err := f.observe.Open(ctx,
		setup.Environment{Stdout: e.Out, Clock: e.Clock, Log: log, Getenv: e.Getenv, Name: "infer batch"})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeObserver()) }()
	p, err := e.prepare(untilSignal, prepareOptions{
		dir: dir, model: cfg.Model.URI, local: installation.LocalOptions{Log: log, Observer: observer},
		// Under the lock, so that it does not change the id and the config of a batch that runs already.
		beforeOpen: func() (err error) {
			if id, err = batch.ResolveRunID(cfg.Output.Dir, f.resume); err != nil {
				return err
			}
			return batch.WriteDeployment(dir, cfg)
		},
	})
	if err != nil {
		return interrupted(err)
	}
	defer func() { err = errors.Join(err, p.close()) }()
	workers := cfg.Workers.Count
	if workers == 1 {
		workers = 0 // one worker in this process
	}
	worker, err := e.workerCommandLine(workerProcess{
		dir: dir, engine: p.deployment.Engine, model: cfg.Model.URI, level: slog.LevelWarn, observe: f.observe,
	})
	if err != nil {
		return err
	}
	b := batch.Batch{Local: p.Local, Config: cfg, Files: files, Run: id, MustExist: f.resume != ""}
	if err := b.CheckResumable(ctx); err != nil {
		return err
	}
	r := standalone.Start(ctx, standalone.Options{Plugins: e.Plugins,
		Local: p.Local, Deployment: p.deployment, Secrets: p.secrets, Workers: workers, Worker: worker,
	})
	runErr := e.inferFollow(ctx, p, r, b, shutdown)
	if err := r.Stop(); err != nil { // why the workers ended, if they did
		return err
	}
	return interrupted(runErr)
}

// resumePaused lets a run go on that is paused: its command was started again.
func resumePaused(ctx context.Context, service *api.Service, id identity.RunID) error {
	s, err := service.Show(ctx, id)
	if err != nil || s.Phase != run.Paused && s.Phase != run.Interrupted {
		return nil // it may not exist yet
	}
	return service.Resume(ctx, id, "infer batch was started again")
}

// inferFollow submits the run, follows it to its end, and copies its results into the output folder.
func (e *Env) inferFollow(
	ctx context.Context, p *prepared, r *standalone.Runtime, b batch.Batch, shutdown <-chan string,
) error {
	follow, cancel := cancelOnShutdown(ctx, r, shutdown)
	defer cancel()
	if err := b.Submit(follow, r.System().Submitter()); err != nil {
		return err
	}
	service := api.New(p.Ports, p.deployment, cloud.OneMachine())
	if err := resumePaused(follow, service, b.Run); err != nil {
		return err
	}
	f := progress.Follower{
		Source: service, View: e.view(installation.Location{Dir: p.Dir}), Clock: e.Clock, UntilPaused: true,
	}
	status, err := f.Follow(follow, b.Run)
	if err != nil {
		return err
	}
	if !status.Phase.Ended() {
		return fault.New(fault.Unavailable, "%s", progress.WithRemedy(
			fmt.Sprintf("run %s is paused: %s", status.Run, status.Message), "start the same command again to continue"))
	}
	if err := b.Publish(ctx); err != nil {
		return err
	}
	published := func(key string) string { return filepath.Join(b.Config.Output.Dir, path.Base(key)) }
	if err := progress.WriteSummary(ctx, e.Err, status, p.Bucket, published); err != nil {
		return err
	}
	if err := progress.WriteKept(ctx, e.Err, status, p.Ports, keepsWork(p.deployment)); err != nil {
		return err
	}
	return progress.Outcome(status, published)
}
