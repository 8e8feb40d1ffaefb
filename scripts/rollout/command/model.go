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
)

func modelCommand(e *Env) *cobra.Command {
	c := &cobra.Command{
		Use:   "model",
		Short: "Show a model of the tiny engine, and export it for other software",
		Args:  unknownCommand,
		RunE:  func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(modelShowCommand(e), modelExportCommand(e))
	return c
}

// modelSource is where a command's model comes from.
type modelSource struct {
	model, snapshot string
	chat            string
	dir             *string
}

// How chats are put to a model.
const (
	chatTurns    = "turns"
	chatContinue = "continue"
)

// chatFlag adds the flag of commands that need to know how.
func (s *modelSource) chatFlag(c *cobra.Command) {
	c.Flags().StringVar(&s.chat, "chat", chatTurns, "how a chat is put to the model: turns, as rollout trains them, or continue, for a model that never saw a chat: it continues the last message")
}

// turns reports whether a chat is put to the model as turns.
func (s *modelSource) turns(c *cobra.Command) (bool, error) {
	if s.chat != chatTurns && s.chat != chatContinue {
		return false, usage(c, "--chat is %q: it is %s or %s", s.chat, chatTurns, chatContinue)
	}
	return s.chat == chatTurns, nil
}

// modelFlags adds the flags that name a model.
func modelFlags(c *cobra.Command) *modelSource {
	s := &modelSource{dir: c.Flags().String("dir", "", "the installation's `folder`, for --snapshot")}
	c.Flags().StringVar(&s.model, "model", tinyName, "tiny, which rollout comes with, or a `file` or folder of weights, such as a restored snapshot")
	c.Flags().StringVar(&s.snapshot, "snapshot", "", "a training's `snapshot` in --dir instead: its id, or an unambiguous beginning of it")
	c.MarkFlagsMutuallyExclusive("model", "snapshot")
	return s
}

// tinyName names the model that rollout comes with.
const tinyName = "tiny"

// The files of weights that a training leaves.
const (
	weightsFile = "model.safetensors"
	headFile    = "head.safetensors" // of a reward model
)

// maxWeights bounds what is read into memory: the largest model that there may
// be is smaller.
const maxWeights = 16 << 30

// scored is a model, and of a reward model the head that gives its score.
type scored struct {
	*weights.Bundle
	head []float32 // nil of a model that gives text
}

// load reads a model that gives text.
func (s *modelSource) load(c *cobra.Command, e *Env) (*weights.Bundle, error) {
	m, err := s.read(c, e)
	if err == nil && m.head != nil {
		return nil, fault.New(fault.Invalid, "this is a reward model: it gives scores and no text")
	}
	return m.Bundle, err
}

// shipped reports whether it is the model that rollout comes with.
func (s *modelSource) shipped() bool { return s.snapshot == "" && s.model == tinyName }

// read reads the model.
func (s *modelSource) read(c *cobra.Command, e *Env) (scored, error) {
	switch {
	case s.snapshot != "":
		return s.readSnapshot(c, e)
	case s.shipped():
		m, err := weights.Shipped()
		return scored{Bundle: m}, err
	}
	return readModel(s.model)
}

// readModel reads a file of weights, or those in a folder. That they are not
// there is an error of the command line.
func readModel(path string) (m scored, err error) {
	head := ""
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		head, path = filepath.Join(path, headFile), filepath.Join(path, weightsFile)
	}
	b, err := readWeights(path)
	if errors.Is(err, fs.ErrNotExist) {
		return m, &fault.Error{Kind: fault.Invalid, Err: err, Remedy: "--model is tiny, a file of weights, or a folder with a " + weightsFile}
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
	if width := m.Model.Config().Width; len(f.Tensors) != 1 || f.Tensors[0].Name != export.ScoreTensor || len(f.Tensors[0].Data) != width {
		return m, fault.New(fault.Corrupt, "%s does not hold %s for a model %d wide, and that alone", head, export.ScoreTensor, width)
	}
	m.head = f.Tensors[0].Data
	return m, nil
}

func readWeights(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err == nil && info.Size() > maxWeights {
		return nil, fault.New(fault.Invalid, "%s has %s: weights have at most %s", path, humanize.IBytes(uint64(info.Size())), humanize.IBytes(maxWeights))
	}
	if err != nil {
		return nil, fault.WithKind(fault.Denied, err, "read the model")
	}
	b, err := os.ReadFile(path)
	return b, fault.WithKind(fault.Denied, err, "read the model")
}

// readSnapshot reads the model out of a snapshot, all of which is checked
// before.
func (s *modelSource) readSnapshot(c *cobra.Command, e *Env) (m scored, err error) {
	_, store, closeAll, err := e.openSnapshots(c, *s.dir)
	if err != nil {
		return m, err
	}
	defer func() { err = errors.Join(err, closeAll()) }()
	snap, err := findSnapshot(c.Context(), store, s.snapshot)
	if err != nil {
		return m, err
	}
	temp, err := os.MkdirTemp("", "rollout-model-")
	if err != nil {
		return m, fault.WithKind(fault.Exhausted, err, "make room for the snapshot")
	}
	defer func() { err = errors.Join(err, os.RemoveAll(temp)) }()
	state := filepath.Join(temp, "state")
	if err := store.Restore(c.Context(), snap, state); err != nil {
		return m, err
	}
	m, err = readModel(state)
	return m, fault.Wrap(err, "snapshot %s", snap.ID)
}

// modelFacts are what `model show` tells, and the shape of its JSON.
type modelFacts struct {
	Name       string `json:"name"`
	Digest     string `json:"digest"` // blake3 of the weights: the model's revision
	Parameters int    `json:"parameters"`
	Vocab      int    `json:"vocab"`
	Context    int    `json:"context"`
	Layers     int    `json:"layers"`
	Width      int    `json:"width"`
	Heads      int    `json:"heads"`
	HeadSize   int    `json:"head_size"`
	Hidden     int    `json:"hidden"`
	Tokenizer  string `json:"tokenizer"` // its hash
	Reward     bool   `json:"reward"`    // it gives scores and no text
}

func modelShowCommand(e *Env) *cobra.Command {
	c := &cobra.Command{Use: "show", Short: "Show what a model is", Args: arguments(0)}
	source := modelFlags(c)
	asJSON := c.Flags().Bool("json", false, "print a JSON object")
	c.RunE = func(c *cobra.Command, _ []string) error {
		m, err := source.read(c, e)
		if err != nil {
			return err
		}
		k := m.Model.Config()
		f := modelFacts{Name: m.Name, Digest: m.Digest, Parameters: k.Parameters(), Vocab: k.Vocab, Context: k.Context, Layers: k.Layers,
			Width: k.Width, Heads: k.Heads, HeadSize: k.HeadSize, Hidden: k.Hidden, Tokenizer: m.Tokenizer.Hash(), Reward: m.head != nil}
		if *asJSON {
			return writeJSON(e.Out, f)
		}
		var sc screen
		gives := "text"
		if f.Reward {
			gives = "scores (a reward model)"
		}
		for _, line := range [][2]string{
			{"model", f.Name},
			{"gives", gives},
			{"digest", f.Digest},
			{"parameters", humanize.Comma(int64(f.Parameters))},
			{"shape", fmt.Sprintf("Llama: %d layers, %d wide, %d heads of %d, %d hidden", f.Layers, f.Width, f.Heads, f.HeadSize, f.Hidden)},
			{"context", fmt.Sprintf("%d tokens", f.Context)},
			{"tokenizer", fmt.Sprintf("byte-level BPE, %s tokens, %s", humanize.Comma(int64(f.Vocab)), f.Tokenizer)},
		} {
			if _, err := fmt.Fprint(e.Out, sc.fact(line[0], line[1])); err != nil {
				return err
			}
		}
		return nil
	}
	return c
}
