package command

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"rollout/gpuworker/tinylm/export"
	"rollout/gpuworker/tinylm/weights"
	"rollout/shared/fault"
	"rollout/shared/figures"
	"rollout/shared/installation"
)

func modelCommand(e *Env) *cobra.Command {
	c := &cobra.Command{
		Use:   "model",
		Short: "Store models in the bucket for machines; show or export a model of the tiny engine",
		Args:  unknownCommand,
		RunE:  func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(modelCacheCommand(e), modelListCommand(e), modelRemoveCommand(e), modelShowCommand(e),
		modelExportCommand(e))
	return c
}

// modelSource says where a command's model comes from.
type modelSource struct {
	model, snapshot string
	chat            string
	location        *installation.Location // of the snapshot
}

// Values of --chat.
const (
	chatTurns    = "turns"
	chatContinue = "continue"
)

// chatFlag adds --chat.
func (s *modelSource) chatFlag(c *cobra.Command) {
	c.Flags().StringVar(&s.chat, "chat", chatTurns, "how to `format` a chat for the model: turns, as rollout trains "+
		"them, or continue, which continues the last message, for a model that was not trained on chats")
}

// chatTurns reports whether a chat is formatted as turns.
func (s *modelSource) chatTurns(c *cobra.Command) (bool, error) {
	if s.chat != chatTurns && s.chat != chatContinue {
		return false, usage(c, "--chat is %q: use %s or %s", s.chat, chatTurns, chatContinue)
	}
	return s.chat == chatTurns, nil
}

// modelFlags adds the flags that name a model.
func modelFlags(c *cobra.Command) *modelSource {
	s := &modelSource{location: locationFlags(c)}
	c.Flags().StringVar(&s.model, "model", tinyName,
		"tiny (the built-in model), or a `file` or folder of weights, such as a restored snapshot")
	c.Flags().StringVar(&s.snapshot, "snapshot", "",
		"a training's `snapshot` in --dir or --cloud: its id or a unique prefix of it")
	c.MarkFlagsMutuallyExclusive("model", "snapshot")
	return s
}

// tinyName names the built-in model.
const tinyName = "tiny"

// Names of the weights files that a training writes.
const (
	weightsFile = "model.safetensors"
	headFile    = "head.safetensors" // only of a reward model
)

// maxWeights limits the bytes of weights that are read into memory. The largest supported model is smaller.
const maxWeights = 16 << 30

// loadedModel is a language model or a reward model.
type loadedModel struct {
	*weights.Bundle
	head []float32 // weights of a reward model's score; nil for a language model
}

// loadLanguageModel reads the model, which must not be a reward model.
func (s *modelSource) loadLanguageModel(c *cobra.Command, e *Env) (*weights.Bundle, error) {
	m, err := s.load(c, e)
	if err == nil && m.head != nil {
		return nil, fault.New(fault.Invalid, "this is a reward model, which produces scores instead of text")
	}
	return m.Bundle, err
}

// builtIn reports whether the source is the built-in model.
func (s *modelSource) builtIn() bool { return s.snapshot == "" && s.model == tinyName }

// load reads the model.
func (s *modelSource) load(c *cobra.Command, e *Env) (loadedModel, error) {
	switch {
	case s.snapshot != "":
		return s.readSnapshot(c, e)
	case s.builtIn():
		m, err := weights.Shipped()
		return loadedModel{Bundle: m}, err
	}
	return readModel(s.model)
}

// readModel reads a file of weights, or the weights in a folder. It is Invalid if they do not exist.
func readModel(path string) (m loadedModel, err error) {
	head := ""
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		head, path = filepath.Join(path, headFile), filepath.Join(path, weightsFile)
	}
	b, err := readWeights(path)
	if errors.Is(err, fs.ErrNotExist) {
		return m, &fault.Error{Kind: fault.Invalid, Err: err,
			Remedy: "set --model to tiny, a file of weights, or a folder with a " + weightsFile}
	}
	if err != nil {
		return m, err
	}
	if m.Bundle, err = weights.Load(b); err != nil {
		return m, fault.Wrap(err, "%s", path)
	}
	if head == "" {
		return m, nil
	}
	if b, err = readWeights(head); errors.Is(err, fs.ErrNotExist) {
		return m, nil
	}
	if err != nil {
		return m, err
	}
	f, err := weights.Decode(b)
	if err != nil {
		return m, fault.Wrap(err, "%s", head)
	}
	width := m.Model.Config().Width
	if len(f.Tensors) != 1 || f.Tensors[0].Name != export.ScoreTensor || len(f.Tensors[0].Data) != width {
		return m, fault.New(fault.Corrupt, "%s must contain exactly one tensor, %s, with the model's width of %d",
			head, export.ScoreTensor, width)
	}
	m.head = f.Tensors[0].Data
	return m, nil
}

func readWeights(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err == nil && info.Size() > maxWeights {
		return nil, fault.New(fault.Invalid, "%s has %s: weights must not be larger than %s",
			path, humanize.IBytes(uint64(info.Size())), humanize.IBytes(maxWeights))
	}
	if err != nil {
		return nil, fault.WithKind(fault.Denied, err, "read the model")
	}
	b, err := os.ReadFile(path)
	return b, fault.WithKind(fault.Denied, err, "read the model")
}

// readSnapshot reads the model from a snapshot. It verifies the whole snapshot first.
func (s *modelSource) readSnapshot(c *cobra.Command, e *Env) (m loadedModel, err error) {
	in, store, err := e.openSnapshots(c, *s.location)
	if err != nil {
		return m, err
	}
	defer func() { err = errors.Join(err, in.Close()) }()
	snap, err := findSnapshot(c.Context(), store, s.snapshot)
	if err != nil {
		return m, err
	}
	temp, err := os.MkdirTemp("", "rollout-model-")
	if err != nil {
		return m, fault.WithKind(fault.Exhausted, err, "create a temporary folder for the snapshot")
	}
	defer func() { err = errors.Join(err, os.RemoveAll(temp)) }()
	state := filepath.Join(temp, "state")
	if err := store.Restore(c.Context(), snap, state); err != nil {
		return m, err
	}
	m, err = readModel(state)
	return m, fault.Wrap(err, "snapshot %s", snap.ID)
}

// modelFacts is the output of `model show`, as its JSON shows it.
type modelFacts struct {
	Name       string `json:"name"`
	Digest     string `json:"digest"` // BLAKE3 of the weights, which is the model's revision
	Parameters int    `json:"parameters"`
	Vocab      int    `json:"vocab"`
	Context    int    `json:"context"`
	Layers     int    `json:"layers"`
	Width      int    `json:"width"`
	Heads      int    `json:"heads"`
	HeadSize   int    `json:"head_size"`
	Hidden     int    `json:"hidden"`
	Tokenizer  string `json:"tokenizer"` // its hash
	Reward     bool   `json:"reward"`    // a reward model, which produces scores
}

func modelShowCommand(e *Env) *cobra.Command {
	c := &cobra.Command{Use: "show", Short: "Show facts about a model", Args: arguments(0)}
	source := modelFlags(c)
	asJSON := c.Flags().Bool("json", false, "print a JSON object")
	c.RunE = func(c *cobra.Command, _ []string) error {
		m, err := source.load(c, e)
		if err != nil {
			return err
		}
		k := m.Model.Config()
		f := modelFacts{
			Name: m.Name, Digest: m.Digest, Parameters: k.Parameters(), Vocab: k.Vocab, Context: k.Context,
			Layers: k.Layers, Width: k.Width, Heads: k.Heads, HeadSize: k.HeadSize, Hidden: k.Hidden,
			Tokenizer: m.Tokenizer.Hash(), Reward: m.head != nil,
		}
		if *asJSON {
			return writeJSON(e.Out, f)
		}
		var sc screen
		output := "text"
		if f.Reward {
			output = "scores (a reward model)"
		}
		for _, line := range [][2]string{
			{"model", f.Name},
			{"output", output},
			{"digest", f.Digest},
			{"parameters", figures.Count(f.Parameters)},
			{"shape", fmt.Sprintf("Llama: layers %d, width %d, heads %d of %d, hidden %d",
				f.Layers, f.Width, f.Heads, f.HeadSize, f.Hidden)},
			{"context", figures.Of(f.Context, "token")},
			{"tokenizer", fmt.Sprintf("byte-level BPE, %s, %s", figures.Of(f.Vocab, "token"), f.Tokenizer)},
		} {
			if _, err := fmt.Fprint(e.Out, sc.fact(line[0], line[1])); err != nil {
				return err
			}
		}
		return nil
	}
	return c
}
