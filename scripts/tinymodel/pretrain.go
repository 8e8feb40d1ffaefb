package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"rollout/gpuworker/tinylm/weights"
	"rollout/scripts/tinymodel/pretrain"
)

func pretrainCommand() *cobra.Command {
	var s trainingFlags
	var out string
	var resume bool
	var every, save, digest int
	c := &cobra.Command{
		Use:   "pretrain",
		Short: "train a new model",
		Long: `pretrain trains a new model to continue the training documents. The defaults of
the flags are the recipe of the shipped model. pretrain saves a checkpoint every
--save-every steps, on SIGINT and SIGTERM, and at the end. With --resume it
continues from the last checkpoint, and ends with the same bytes as without a
stop. Each checkpoint, OUT/step-<n>, has a ` + modelFile + ` that evaluate
and pack accept; the result is OUT/` + modelFile + `.

The learning rate reaches its floor at the last step, so choose --steps to fit
the available time: ` + "`tinymodel speed --seconds 500`" + ` prints how many steps fit.
More threads than sequences in a batch hardly make it faster.

	tinymodel pretrain --threads 16 --steps "$(tinymodel speed --threads 16 --seconds 500)"`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			t, stream, err := s.open(out, resume)
			if err != nil {
				return err
			}
			l := loop{
				trainingFlags: s, trainer: t, out: out, log: c.OutOrStdout(), every: every, save: save, digest: digest,
			}
			epochs := float64(s.recipe.Steps) * float64(l.tokens()) / float64(stream.Len())
			fmt.Fprintf(l.log, "%d parameters, %d training tokens, %d tokens per step, %d steps: %.1f epochs; from step %d\n",
				s.recipe.Config(t.Model().Config().Vocab).Parameters(), stream.Len(), l.tokens(), s.recipe.Steps,
				epochs, t.StepsDone())
			return l.run(c.Context())
		},
	}
	s.register(c)
	f := c.Flags()
	f.StringVar(&out, "out", "out/model/run", "folder for checkpoints and the result")
	f.BoolVar(&resume, "resume", false, "continue from the last checkpoint, if there is one")
	f.IntVar(&every, "log-every", 100, "steps between two lines of progress")
	f.IntVar(&save, "save-every", 500, "steps between two checkpoints")
	f.IntVar(&digest, "digest-every", 1000, "steps between two digests of the parameters and moments")
	return c
}

// loop runs a training and prints its progress.
type loop struct {
	trainingFlags
	trainer             *pretrain.Trainer
	out                 string
	log                 io.Writer
	every, save, digest int // steps between two lines of progress, checkpoints and digests
}

// tokens returns the number of tokens of a step.
func (l *loop) tokens() int { return l.recipe.Batch * l.recipe.Context }

// run takes all steps, saves checkpoints and writes the result. If ctx is canceled,
// it saves a checkpoint and returns an error.
func (l *loop) run(ctx context.Context) error {
	start, first := time.Now(), l.trainer.StepsDone()
	sum, n := 0.0, 0
	for l.trainer.StepsDone() < l.recipe.Steps {
		if ctx.Err() != nil {
			if err := l.trainer.Save(l.out, modelName); err != nil {
				return err
			}
			return fmt.Errorf("stopped after step %d, which is saved: continue with --resume", l.trainer.StepsDone())
		}
		loss, err := l.trainer.Step()
		if err != nil {
			return err
		}
		sum, n = sum+loss, n+1
		done := l.trainer.StepsDone()
		if done%l.every == 0 || done == l.recipe.Steps {
			rate := float64(done-first) / time.Since(start).Seconds()
			left := time.Duration(float64(l.recipe.Steps-done) / rate * float64(time.Second))
			fmt.Fprintf(l.log, "step %d of %d  loss %.4f  %.0f tokens/s  %s left\n",
				done, l.recipe.Steps, sum/float64(n), rate*float64(l.tokens()), left.Round(time.Second))
			sum, n = 0, 0
		}
		if done%l.digest == 0 || done == l.recipe.Steps {
			fmt.Fprintf(l.log, "step %d: digest %s\n", done, l.trainer.Digest())
		}
		if done%l.save == 0 || done == l.recipe.Steps {
			if err := l.trainer.Save(l.out, modelName); err != nil {
				return err
			}
		}
	}
	return l.writeResult()
}

// writeResult copies the model of the last checkpoint to the output folder.
func (l *loop) writeResult() error {
	last := filepath.Join(l.out, fmt.Sprintf("step-%06d", l.trainer.StepsDone()), modelFile)
	b, err := os.ReadFile(last)
	if err != nil {
		return err
	}
	bundle, err := weights.Load(b)
	if err != nil {
		return err
	}
	result := filepath.Join(l.out, modelFile)
	if err := os.WriteFile(result, b, 0o644); err != nil {
		return err
	}
	fmt.Fprintf(l.log, "%s: digest %s\n", result, bundle.Digest)
	return nil
}
