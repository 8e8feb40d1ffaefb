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
	"rollout/gpuworker/process"
	"rollout/scripts/rollout/batch"
	"rollout/scripts/rollout/progress"
	"rollout/scripts/rollout/standalone"
	"rollout/shared/cloud"
	"rollout/shared/config"
	"rollout/shared/core/identity"
	"rollout/shared/fault"
	"rollout/shared/installation"
	"rollout/shared/observe/setup"
)

// inferFlags are the arguments of infer batch.
type inferFlags struct {
	config, resume string
	engine         []string
	workers        int
	dryRun         bool
	watch          setup.Options
}

func inferCommand(e *Env) *cobra.Command {
	parent := &cobra.Command{
		Use:   "infer",
		Short: "Answer files of prompts without an installation",
		Args:  arguments(0),
		RunE:  func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	var f inferFlags
	c := &cobra.Command{
		Use:   "batch",
		Short: "Answer every prompt of the files that a config names; a run that was cut off goes on",
		Long: "Answers every prompt of [input] glob and writes completions.jsonl, errors.jsonl and summary.json into [output] dir.\n\n" +
			"The run's id is --resume, else what <output.dir>/run-id says, else a new one that is written there: so starting the same command again goes on where it stopped.",
		Args:        arguments(0),
		Annotations: map[string]string{handlesSignals: "yes"},
		RunE:        func(c *cobra.Command, _ []string) error { return e.infer(c, f) },
	}
	fs := c.Flags()
	fs.StringVar(&f.config, "config", "", "the batch's config `file`")
	fs.StringVar(&f.resume, "resume", "", "the `run` to go on with")
	fs.StringSliceVar(&f.engine, "engine", nil, "`URL` of an OpenAI-compatible server, may be given for each of several, tiny or mock; [engine] of the config if left out, else tiny")
	fs.IntVar(&f.workers, "workers", 0, "worker processes; [workers] count of the config if 0")
	fs.BoolVar(&f.dryRun, "dry-run", false, "check the config and every input line; ask no engine; exit with 1 if lines are bad")
	f.watch.AddFlags(fs)
	parent.AddCommand(c)
	return parent
}

func (e *Env) infer(c *cobra.Command, f inferFlags) error {
	if f.config == "" {
		return usage(c, "--config is missing")
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
		return e.dryRun(c.Context(), cfg, files)
	}
	if len(cfg.Engine.Servers()) == 0 {
		if cfg.Model.URI != config.ModelTiny {
			return process.NoEngine("the model " + cfg.Model.URI)
		}
		cfg.Engine = cfg.Engine.WithURLs([]string{config.EngineTiny})
	}
	return e.inferRun(c, f, cfg, files)
}

// inferConfig reads the config and lets the flags override it.
func (e *Env) inferConfig(c *cobra.Command, f inferFlags) (config.Infer, error) {
	src, err := installation.ReadConfig(f.config)
	if err != nil {
		return config.Infer{}, &fault.Error{Kind: fault.Invalid, Op: "--config", Err: err, Remedy: "name the batch's config: examples/batch.toml shows one"}
	}
	cfg, err := config.ParseInfer(f.config, src)
	if err != nil {
		return cfg, err
	}
	if c.Flags().Changed("workers") {
		cfg.Workers.Count = f.workers
	}
	cfg.Engine = cfg.Engine.WithURLs(f.engine)
	return cfg, cfg.Check()
}

// dryRun reads everything that the run would read, and asks nobody.
func (e *Env) dryRun(ctx context.Context, cfg config.Infer, files []string) error {
	report, err := batch.Check(ctx, cfg, files)
	if err != nil {
		return err
	}
	for _, w := range append(report.Warnings, batch.GatedWarning(cfg.Model.URI, e.Getenv)...) {
		if _, err := fmt.Fprintf(e.Err, "warning: %s\n", w); err != nil {
			return err
		}
	}
	if report.Bad > 0 {
		if _, err := fmt.Fprintf(e.Out, "dry-run: model=%s inputs=%d bad=%d workers=%d\n", cfg.Model.URI, report.Items, report.Bad, cfg.Workers.Count); err != nil {
			return err
		}
		return &fault.Error{Kind: fault.Conflict, Err: fmt.Errorf("%d of %d lines can't be asked", report.Bad, report.Items),
			Remedy: "correct them; without --dry-run they become error lines, and all others are answered"}
	}
	_, err = fmt.Fprintf(e.Out, "dry-run OK: model=%s inputs=%d workers=%d\n", cfg.Model.URI, report.Items, cfg.Workers.Count)
	return err
}

func (e *Env) inferRun(c *cobra.Command, f inferFlags, cfg config.Infer, files []string) (err error) {
	log, err := e.logger(slog.LevelWarn)
	if err != nil {
		return err
	}
	var id identity.RunID
	dir := cfg.StateDir()
	ctx, asked, leave := process.NotifyShutdown(c.Context(), 0)
	watch, closeWatch, err := f.watch.Open(ctx, setup.Environment{Stdout: e.Out, Clock: e.Clock, Log: log, Getenv: e.Getenv, Name: "infer batch"})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeWatch()) }()
	p, err := e.prepare(asked, dir, nil, cfg.Model.URI, installation.LocalOptions{Log: log, Observer: watch}, func() (err error) { // a batch that runs already keeps its id and its config
		if id, err = batch.ResolveRunID(cfg.Output.Dir, f.resume); err != nil {
			return err
		}
		return batch.WriteDeployment(dir, cfg)
	})
	if err != nil {
		return interrupted(err)
	}
	defer func() { err = errors.Join(err, p.close()) }()
	workers := cfg.Workers.Count
	if workers == 1 {
		workers = 0 // in this process
	}
	line, err := workerLine(dir, e, slog.LevelWarn, p.deployment.Engine, cfg.Model.URI, f.watch)
	if err != nil {
		return err
	}
	b := batch.Batch{Local: p.Local, Config: cfg, Files: files, Run: id, MustExist: f.resume != ""}
	if err := b.CheckResumable(ctx); err != nil {
		return err
	}
	s := standalone.Start(ctx, standalone.Options{Local: p.Local, Deployment: p.deployment, Secrets: p.secrets,
		Workers: workers, Worker: line})
	runErr := e.inferFollow(ctx, p, s, b, id, leave)
	if err := s.Stop(); err != nil { // it says why there is no worker
		return err
	}
	return interrupted(runErr)
}

// inferFollow submits the run and follows it to its end.
func (e *Env) inferFollow(ctx context.Context, p *prepared, s *standalone.Runtime, b batch.Batch, id identity.RunID, leave <-chan string) error {
	follow, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-leave:
		case <-s.Ended():
		case <-follow.Done():
		}
		cancel()
	}()
	if err := b.Submit(follow, s.System().Submitter()); err != nil {
		return err
	}
	service := api.New(p.Ports, p.deployment, cloud.OneMachine())
	status, err := progress.Follower{Source: service, View: progress.NewView(e.Err, e.Clock), Clock: e.Clock}.Follow(follow, id)
	if err != nil {
		return err
	}
	if err := b.Publish(ctx); err != nil {
		return err
	}
	published := func(key string) string { return filepath.Join(b.Config.Output.Dir, path.Base(key)) }
	if err := progress.WriteSummary(ctx, e.Err, status, p.Bucket, published); err != nil {
		return err
	}
	return progress.Outcome(status, published)
}
