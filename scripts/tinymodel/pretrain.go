package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"github.com/spf13/cobra"

	"rollout/gpuworker/tinylm/weights"
	"rollout/scripts/tinymodel/pretrain"
)

// modelName is the name under which the result is known.
const modelName = "rollout/tiny"

// modelFile is the result in a folder of training.
const modelFile = "model.safetensors"

// defaultVocab is the number of tokens of the shipped model's tokenizer.
const defaultVocab = 1024

// shipped is the recipe of the shipped model.
func shipped() pretrain.Recipe {
	return pretrain.Recipe{
		Width: 128, Layers: 6, Heads: 2, HeadSize: 64, Hidden: 384, Context: 256,
		Steps: 6000, Batch: 16, Seed: 1,
		Rate: 3e-3, Warmup: 200, Floor: 0, Shape: "linear", Beta1: 0.9, Beta2: 0.95, Decay: 0.1, Clip: 1,
	}
}

// sources are what training starts from, as flags name them.
type sources struct {
	corpus, tokenizer string
	recipe            pretrain.Recipe
	threads           int
}

func (s *sources) flags(c *cobra.Command) {
	s.recipe = shipped()
	f, r := c.Flags(), &s.recipe
	f.StringVar(&s.corpus, "corpus", "out/model/"+learnFile, "documents to learn from")
	f.StringVar(&s.tokenizer, "tokenizer", "out/model/"+tokenizerFile, "tokenizer")
	f.IntVar(&s.threads, "threads", runtime.GOMAXPROCS(0), "threads; they change nothing but the speed")
	f.IntVar(&r.Width, "width", r.Width, "floats of the residual stream")
	f.IntVar(&r.Layers, "layers", r.Layers, "layers")
	f.IntVar(&r.Heads, "heads", r.Heads, "attention heads")
	f.IntVar(&r.HeadSize, "head-size", r.HeadSize, "floats of a head")
	f.IntVar(&r.Hidden, "hidden", r.Hidden, "floats between the projections of the MLP")
	f.IntVar(&r.Context, "context", r.Context, "tokens of a sequence")
	f.IntVar(&r.Steps, "steps", r.Steps, "steps in all")
	f.IntVar(&r.Batch, "batch", r.Batch, "sequences of a step")
	f.Uint64Var(&r.Seed, "seed", r.Seed, "seed of the first parameters and of the documents' order")
	f.Float64Var(&r.Rate, "rate", r.Rate, "learning rate after the warm-up")
	f.IntVar(&r.Warmup, "warmup", r.Warmup, "steps until the learning rate is reached")
	f.Float64Var(&r.Floor, "floor", r.Floor, "what the learning rate falls to, as a part of it")
	f.StringVar(&r.Shape, "shape", r.Shape, "how it falls: cosine or linear")
	f.Float64Var(&r.Beta1, "beta1", r.Beta1, "decay of AdamW's first moment")
	f.Float64Var(&r.Beta2, "beta2", r.Beta2, "decay of AdamW's second moment")
	f.Float64Var(&r.Decay, "decay", r.Decay, "decay of matrices")
	f.Float64Var(&r.Clip, "clip", r.Clip, "most of the gradients' norm; 0: any")
}

// open starts training, or goes on with what is in the folder.
func (s *sources) open(folder string, resume bool) (*pretrain.Trainer, *pretrain.Stream, error) {
	tok, err := readTokenizer(s.tokenizer)
	if err != nil {
		return nil, nil, err
	}
	documents, err := readDocuments(s.corpus)
	if err != nil {
		return nil, nil, err
	}
	stream, err := pretrain.NewStream(tok, documents, s.recipe.Seed)
	if err != nil {
		return nil, nil, err
	}
	if folder != "" {
		t, found, err := pretrain.Resume(folder, s.recipe, tok, stream, s.threads)
		switch {
		case found && !resume:
			return nil, nil, fmt.Errorf("%s has checkpoints: add --resume to go on from the last, or name another folder with --out", folder)
		case found || err != nil && resume:
			return t, stream, err
		}
	}
	t, err := pretrain.New(s.recipe, tok, stream, s.threads)
	return t, stream, err
}

func pretrainCommand() *cobra.Command {
	var s sources
	var out string
	var resume bool
	var every, save, digest int
	c := &cobra.Command{
		Use:   "pretrain",
		Short: "teach a model from nothing",
		Long: `pretrain teaches a model to continue the documents. The flags' defaults are the
recipe of the shipped model. It saves a checkpoint every so many steps, at
SIGINT and SIGTERM, and at the end; with --resume it goes on from the last, and
ends with the same bytes as if it had never stopped. Each checkpoint,
OUT/step-<n>, has a ` + modelFile + ` that can be evaluated and packed as it is; the
result is OUT/` + modelFile + `.

The learning rate falls to its floor at the last step, so choose --steps by the
time there is: ` + "`tinymodel speed --seconds 500`" + ` says how many fit. More threads than
sequences in a batch are of little use.

	tinymodel pretrain --threads 16 --steps "$(tinymodel speed --threads 16 --seconds 500)"`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			t, stream, err := s.open(out, resume)
			if err != nil {
				return err
			}
			l := loop{sources: s, trainer: t, out: out, log: c.OutOrStdout(), every: every, save: save, digest: digest}
			fmt.Fprintf(l.log, "%d parameters, %d tokens to learn from, %d tokens a step, %.1f times each in %d steps; from step %d\n",
				s.recipe.Config(t.Model().Config().Vocab).Parameters(), stream.Len(), l.tokens(), float64(s.recipe.Steps)*float64(l.tokens())/float64(stream.Len()), s.recipe.Steps, t.StepsDone())
			return l.run(c.Context())
		},
	}
	s.flags(c)
	f := c.Flags()
	f.StringVar(&out, "out", "out/model/run", "folder for checkpoints and the result")
	f.BoolVar(&resume, "resume", false, "go on from the last checkpoint, if there is one")
	f.IntVar(&every, "log-every", 100, "steps between two lines of progress")
	f.IntVar(&save, "save-every", 500, "steps between two checkpoints")
	f.IntVar(&digest, "digest-every", 1000, "steps between two digests of the parameters and moments")
	return c
}

// loop trains and tells about it.
type loop struct {
	sources
	trainer             *pretrain.Trainer
	out                 string
	log                 io.Writer
	every, save, digest int // steps
}

func (l *loop) tokens() int { return l.recipe.Batch * l.recipe.Context }

func (l *loop) run(ctx context.Context) error {
	start, first := time.Now(), l.trainer.StepsDone()
	sum, n := 0.0, 0
	for l.trainer.StepsDone() < l.recipe.Steps {
		if ctx.Err() != nil {
			if err := l.trainer.Save(l.out, modelName); err != nil {
				return err
			}
			return fmt.Errorf("stopped after step %d, which is saved: go on with --resume", l.trainer.StepsDone())
		}
		loss, err := l.trainer.Step()
		if err != nil {
			return err
		}
		sum, n = sum+loss, n+1
		done := l.trainer.StepsDone()
		if done%l.every == 0 || done == l.recipe.Steps {
			spent := time.Since(start)
			rate := float64(done-first) / spent.Seconds()
			left := time.Duration(float64(l.recipe.Steps-done) / rate * float64(time.Second))
			fmt.Fprintf(l.log, "step %d of %d  loss %.4f  %.0f tokens/s  %s left\n", done, l.recipe.Steps, sum/float64(n), rate*float64(l.tokens()), left.Round(time.Second))
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

func speedCommand() *cobra.Command {
	var s sources
	var seconds int
	var verbose bool
	c := &cobra.Command{
		Use:   "speed",
		Short: "say how many steps fit into a time on this machine",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if seconds < 1 {
				return errors.New("--seconds must be at least 1")
			}
			t, _, err := s.open("", false)
			if err != nil {
				return err
			}
			var spent time.Duration
			steps := 0
			for spent < 8*time.Second && c.Context().Err() == nil {
				begin := time.Now()
				if _, err := t.Step(); err != nil {
					return err
				}
				if t.StepsDone() > 3 { // the first ones warm up
					spent += time.Since(begin)
					steps++
				}
			}
			if verbose {
				fmt.Fprintf(c.ErrOrStderr(), "%.0f tokens/s with %d threads\n", float64(steps*s.recipe.Batch*s.recipe.Context)/spent.Seconds(), s.threads)
			}
			fmt.Fprintln(c.OutOrStdout(), int(float64(seconds)/spent.Seconds()*float64(steps)))
			return c.Context().Err()
		},
	}
	s.flags(c)
	c.Flags().IntVar(&seconds, "seconds", 500, "the time there is")
	c.Flags().BoolVarP(&verbose, "verbose", "v", false, "tell tokens/s on standard error")
	return c
}
