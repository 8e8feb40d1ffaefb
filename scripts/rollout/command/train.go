package command

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"runtime"

	"github.com/spf13/cobra"

	"rollout/gpuworker/process"
	"rollout/gpuworker/training"
	"rollout/scripts/rollout/progress"
	"rollout/scripts/rollout/train"
	"rollout/shared/config"
	"rollout/shared/fault"
	"rollout/shared/figures"
	"rollout/shared/installation"
	"rollout/shared/observe"
)

// trainFlags are the flags of train.
type trainFlags struct {
	config, resume string
	threads        int
	settings       *[]string // of --set
	dryRun, json   bool
}

func trainCommand(e *Env) *cobra.Command {
	parent := &cobra.Command{
		Use:   "train",
		Short: "Train the built-in model on this machine",
		Args:  unknownCommand,
		RunE:  func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	parent.AddCommand(
		e.trainKind(config.AlgorithmSFT, "Fine-tune on prompts and answers"),
		e.trainKind(config.AlgorithmRM, "Train a reward model from pairs of a better and a worse answer"),
	)
	return parent
}

func (e *Env) trainKind(kind, short string) *cobra.Command {
	var f trainFlags
	c := &cobra.Command{
		Use:   kind,
		Short: short,
		Long: short + ".\n\n" +
			"Saves a snapshot every snapshot.every_steps steps, at the end, and on Ctrl-C or SIGTERM. A training that\n" +
			"resumes from one of them, on any machine and with any number of threads, ends with the same bytes as\n" +
			"without a break.",
		Args:        arguments(0),
		Annotations: map[string]string{handlesSignals: "yes"},
		RunE:        func(c *cobra.Command, _ []string) error { return e.train(c, kind, f) },
	}
	f.settings = setFlag(c, "over the config: a `setting` such as algorithm."+kind+".budget.max_steps=100")
	fs := c.Flags()
	fs.StringVar(&f.config, "config", "", "the training's config `file`")
	fs.StringVar(&f.resume, "resume", "", "resume from a `snapshot`: its id, a unique prefix of it, or latest")
	fs.BoolVar(&f.dryRun, "dry-run", false, "only check the config and every row of the dataset")
	fs.BoolVar(&f.json, "json", false, "print a JSON object for each step, and one at the end")
	fs.IntVar(&f.threads, "threads", 0, "`number` of compute threads (default: one per core)")
	return c
}

func (e *Env) train(c *cobra.Command, kind string, f trainFlags) error {
	switch {
	case f.config == "":
		return usage(c, "--config is missing")
	case f.threads < 0 || f.threads > maxThreads:
		return usage(c, "--threads must be between 0 and %d", maxThreads)
	case f.threads == 0:
		f.threads = runtime.GOMAXPROCS(0)
	}
	src, err := installation.ReadConfig(f.config)
	if err != nil {
		return &fault.Error{Kind: fault.Invalid, Op: "--config", Err: err,
			Remedy: "name the training's config; see examples/sft-tiny.toml"}
	}
	o := train.Options{File: f.config, Resume: f.resume, Threads: f.threads}
	if o.Config, err = config.ParseTrain(f.config, src); err != nil {
		return err
	}
	if o.Config, err = o.Config.Set(*f.settings); err != nil {
		return err
	}
	if err := o.CheckKind(kind); err != nil {
		return err
	}
	if f.dryRun {
		line, err := o.DryRun(c.Context())
		if err != nil {
			return err
		}
		_, err = fmt.Fprintln(e.Out, line)
		return err
	}
	return e.trainRun(c, o, f.json)
}

// maxThreads limits --threads. No machine has more cores.
const maxThreads = 1024

// trainRun trains to the end, or to the next step after a signal.
func (e *Env) trainRun(c *cobra.Command, o train.Options, asJSON bool) (err error) {
	log, err := e.logger(slog.LevelWarn)
	if err != nil {
		return err
	}
	ctx, untilSignal, shutdown := process.NotifyShutdown(c.Context(), 0)
	s, err := train.Open(untilSignal, o, installation.LocalOptions{Log: log, Clock: e.Clock})
	if err != nil {
		return interrupted(err)
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	taken, all := s.Trainer.Steps()
	if err := e.printTrainStart(s, o); err != nil {
		return err
	}
	log.InfoContext(ctx, "train_start", observe.KeyRun, s.RunID(), "algorithm", s.Trainer.Algorithm(),
		"step", taken, "steps", all, "threads", o.Threads, "resumed", s.Resumed)
	stop := make(chan struct{})
	go func() {
		select {
		case <-shutdown:
			close(stop)
		case <-ctx.Done():
		}
	}()
	view := train.NewView(e.Err, "train "+s.Trainer.Algorithm(), taken, all, e.Clock, e.palette(e.Err))
	var writeErr error // of a step's JSON
	result, err := s.Run(ctx, stop, func(r training.Report) {
		view.Update(r)
		log.InfoContext(ctx, "train_step", observe.KeyRun, s.RunID(),
			"step", r.Step, "loss", r.Loss, "tokens", r.Tokens, "lr", r.LR, "grad_norm", r.GradNorm)
		if asJSON && writeErr == nil {
			writeErr = json.NewEncoder(e.Out).Encode(r)
		}
	})
	view.Close()
	if err = errors.Join(err, writeErr); err != nil {
		return interrupted(err)
	}
	log.InfoContext(ctx, "train_end", observe.KeyRun, s.RunID(),
		"step", result.Step, "steps", result.Steps, "snapshot", result.Snapshot)
	if asJSON {
		err = json.NewEncoder(e.Out).Encode(result)
	} else {
		err = e.printTrainResult(result, s.Trainer)
	}
	if err == nil && !result.Done {
		err = &fault.Error{Kind: fault.Canceled,
			Err: fmt.Errorf("interrupted at step %d of %d; the state is saved in snapshot %s",
				result.Step, result.Steps, result.Snapshot),
			Remedy: "start the same command with --resume latest to continue"}
	}
	return err
}

// printTrainStart prints where a training with --resume starts.
func (e *Env) printTrainStart(s *train.Session, o train.Options) (err error) {
	done, all := s.Trainer.Steps()
	switch {
	case s.Resumed != "":
		err = e.say("resuming from snapshot %s at step %d of %d", s.Resumed, done, all)
	case o.Resume != "":
		err = e.say("there is no snapshot in %s yet: starting from the beginning",
			progress.SanitizeLine(s.Output, 200))
	}
	return err
}

// printTrainResult prints the result of a training.
func (e *Env) printTrainResult(r train.Result, t *training.Trainer) error {
	text := fmt.Sprintf("step        %d of %d\n", r.Step, r.Steps)
	if points := t.Curve().Points; len(points) > 0 {
		text += fmt.Sprintf("loss        %.4f at first, %.4f at last\n", points[0], points[len(points)-1])
	}
	if v := r.Evaluation; v != nil {
		text += fmt.Sprintf("evaluation  loss %.4f", v.Loss)
		if v.Accuracy != nil {
			text += ", accuracy " + figures.Short(100**v.Accuracy) + "%"
		}
		text += " on " + figures.Of(v.Rows, "row") + " of the dataset\n"
		if v.Truncated > 0 {
			text += fmt.Sprintf("truncated   %d of them were longer than max_seq_len\n", v.Truncated)
		}
	}
	text += "curve       " + progress.SanitizeLine(r.Curve, 1000) + "\n"
	text += "snapshot    " + r.Snapshot + "\n"
	_, err := fmt.Fprint(e.Out, text)
	return err
}
