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
	"rollout/shared/installation"
	"rollout/shared/observe"
)

// trainFlags are the arguments of train.
type trainFlags struct {
	config, resume string
	threads        int
	dryRun, json   bool
}

func trainCommand(e *Env) *cobra.Command {
	parent := &cobra.Command{
		Use:   "train",
		Short: "Train the model that comes with rollout, on this machine",
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
			"The state is kept every [snapshot] every_steps, at the end, and at Ctrl-C or SIGTERM. Whoever goes on from any of these snapshots, " +
			"on any machine and any number of threads, ends with the same bytes as without a break.",
		Args:        arguments(0),
		Annotations: map[string]string{handlesSignals: "yes"},
		RunE:        func(c *cobra.Command, _ []string) error { return e.train(c, kind, f) },
	}
	fs := c.Flags()
	fs.StringVar(&f.config, "config", "", "the training's config `file`")
	fs.StringVar(&f.resume, "resume", "", "go on from a `snapshot`: an id, the beginning of one, or latest")
	fs.BoolVar(&f.dryRun, "dry-run", false, "check the config and every row; train nothing")
	fs.BoolVar(&f.json, "json", false, "print a JSON object for each step, and one at the end")
	fs.IntVar(&f.threads, "threads", 0, "threads; as many as there are processors if 0")
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
		return &fault.Error{Kind: fault.Invalid, Op: "--config", Err: err, Remedy: "name the training's config: examples/sft-tiny.toml shows one"}
	}
	o := train.Options{File: f.config, Resume: f.resume, Threads: f.threads}
	if o.Config, err = config.ParseTrain(f.config, src); err != nil {
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

// maxThreads is more than any processor has.
const maxThreads = 1024

func (e *Env) trainRun(c *cobra.Command, o train.Options, asJSON bool) (err error) {
	log, err := e.logger(slog.LevelWarn)
	if err != nil {
		return err
	}
	ctx, asked, leave := process.NotifyShutdown(c.Context(), 0)
	s, err := train.Open(asked, o, installation.LocalOptions{Log: log, Clock: e.Clock})
	if err != nil {
		return interrupted(err)
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	taken, all := s.Trainer.Steps()
	if err := e.sayTrain(s, o); err != nil {
		return err
	}
	log.InfoContext(ctx, "train_start", observe.KeyRun, s.RunID(), "algorithm", s.Trainer.Algorithm(), "step", taken, "steps", all, "threads", o.Threads, "resumed", s.Resumed)
	stop := make(chan struct{})
	go func() {
		select {
		case <-leave:
			close(stop)
		case <-ctx.Done():
		}
	}()
	view := train.NewView(e.Err, "train "+s.Trainer.Algorithm(), taken, all, e.Clock)
	var lost error // of what each step prints
	result, err := s.Run(ctx, stop, func(r training.Report) {
		view.Update(r)
		log.InfoContext(ctx, "train_step", observe.KeyRun, s.RunID(), "step", r.Step, "loss", r.Loss, "tokens", r.Tokens, "lr", r.LR, "grad_norm", r.GradNorm)
		if asJSON && lost == nil {
			lost = json.NewEncoder(e.Out).Encode(r)
		}
	})
	view.Close()
	if err = errors.Join(err, lost); err != nil {
		return interrupted(err)
	}
	log.InfoContext(ctx, "train_end", observe.KeyRun, s.RunID(), "step", result.Step, "steps", result.Steps, "snapshot", result.Snapshot)
	if asJSON {
		err = json.NewEncoder(e.Out).Encode(result)
	} else {
		err = e.sayTrained(result, s.Trainer)
	}
	if err == nil && !result.Done {
		err = &fault.Error{Kind: fault.Canceled, Err: fmt.Errorf("interrupted at step %d of %d; snapshot %s is kept", result.Step, result.Steps, result.Snapshot),
			Remedy: "start the same command with --resume latest to go on"}
	}
	return err
}

// sayTrain says from where it goes on.
func (e *Env) sayTrain(s *train.Session, o train.Options) (err error) {
	taken, all := s.Trainer.Steps()
	switch {
	case s.Resumed != "":
		_, err = fmt.Fprintf(e.Err, "going on from snapshot %s, at step %d of %d\n", s.Resumed, taken, all)
	case o.Resume != "":
		_, err = fmt.Fprintf(e.Err, "there is no snapshot in %s yet: starting at the beginning\n", progress.SanitizeLine(s.Output, 200))
	}
	return err
}

// sayTrained tells how a training ended.
func (e *Env) sayTrained(r train.Result, t *training.Trainer) error {
	text := fmt.Sprintf("step        %d of %d\n", r.Step, r.Steps)
	if points := t.Curve().Points; len(points) > 0 {
		text += fmt.Sprintf("loss        %.4f at first, %.4f at last\n", points[0], points[len(points)-1])
	}
	if v := r.Evaluation; v != nil {
		text += fmt.Sprintf("evaluation  loss %.4f", v.Loss)
		if v.Accuracy != nil {
			text += fmt.Sprintf(", accuracy %.1f %%", 100**v.Accuracy)
		}
		text += fmt.Sprintf(" on %d rows of the dataset\n", v.Rows)
		if v.Truncated > 0 {
			text += fmt.Sprintf("cut         %d of them are longer than max_seq_len and lost a part\n", v.Truncated)
		}
	}
	text += "curve       " + progress.SanitizeLine(r.Curve, 1000) + "\n"
	text += "snapshot    " + r.Snapshot + "\n"
	_, err := fmt.Fprint(e.Out, text)
	return err
}
