package main

import (
	"fmt"
	"runtime"

	"github.com/spf13/cobra"

	"rollout/scripts/tinymodel/pretrain"
)

// modelName is the name of the shipped model.
const modelName = "rollout/tiny"

// modelFile is the file of the model in an output folder of pretrain.
const modelFile = "model.safetensors"

// defaultVocab is the number of tokens of the shipped model's tokenizer.
const defaultVocab = 1024

// shippedRecipe returns the recipe of the shipped model.
func shippedRecipe() pretrain.Recipe {
	return pretrain.Recipe{
		Width: 128, Layers: 6, Heads: 2, HeadSize: 64, Hidden: 384, Context: 256,
		Steps: 6000, Batch: 16, Seed: 1,
		Rate: 3e-3, Warmup: 200, Floor: 0, Shape: "linear", Beta1: 0.9, Beta2: 0.95, Decay: 0.1, Clip: 1,
	}
}

// trainingFlags are the flags that select the inputs of training.
type trainingFlags struct {
	corpus, tokenizer string
	recipe            pretrain.Recipe
	threads           int
}

// register adds the flags to a command.
func (s *trainingFlags) register(c *cobra.Command) {
	s.recipe = shippedRecipe()
	f, r := c.Flags(), &s.recipe
	f.StringVar(&s.corpus, "corpus", "out/model/"+learnFile, "file of training documents")
	f.StringVar(&s.tokenizer, "tokenizer", "out/model/"+tokenizerFile, "file of the tokenizer")
	f.IntVar(&s.threads, "threads", runtime.GOMAXPROCS(0), "number of threads; changes only the speed")
	f.IntVar(&r.Width, "width", r.Width, "floats of the residual stream")
	f.IntVar(&r.Layers, "layers", r.Layers, "number of layers")
	f.IntVar(&r.Heads, "heads", r.Heads, "number of attention heads per layer")
	f.IntVar(&r.HeadSize, "head-size", r.HeadSize, "floats of a head")
	f.IntVar(&r.Hidden, "hidden", r.Hidden, "floats between the projections of the MLP")
	f.IntVar(&r.Context, "context", r.Context, "tokens of a sequence")
	f.IntVar(&r.Steps, "steps", r.Steps, "total number of steps")
	f.IntVar(&r.Batch, "batch", r.Batch, "sequences per step")
	f.Uint64Var(&r.Seed, "seed", r.Seed, "seed of the initial parameters and of the documents' order")
	f.Float64Var(&r.Rate, "rate", r.Rate, "learning rate after the warm-up")
	f.IntVar(&r.Warmup, "warmup", r.Warmup, "number of warm-up steps")
	f.Float64Var(&r.Floor, "floor", r.Floor, "final learning rate as a share of --rate")
	f.StringVar(&r.Shape, "shape", r.Shape, "shape of the learning rate's fall: cosine or linear")
	f.Float64Var(&r.Beta1, "beta1", r.Beta1, "decay of AdamW's first moment")
	f.Float64Var(&r.Beta2, "beta2", r.Beta2, "decay of AdamW's second moment")
	f.Float64Var(&r.Decay, "decay", r.Decay, "weight decay of matrices")
	f.Float64Var(&r.Clip, "clip", r.Clip, "maximum norm of the gradients; 0: no clipping")
}

// open returns a trainer: a new one, or, with resume, one at the last checkpoint in
// the folder. If folder is "", the trainer is new.
func (s *trainingFlags) open(folder string, resume bool) (*pretrain.Trainer, *pretrain.Stream, error) {
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
			return nil, nil, fmt.Errorf("%s has checkpoints: add --resume to continue from the last one, "+
				"or choose another folder with --out", folder)
		case found || err != nil && resume:
			return t, stream, err
		}
	}
	t, err := pretrain.New(s.recipe, tok, stream, s.threads)
	return t, stream, err
}
