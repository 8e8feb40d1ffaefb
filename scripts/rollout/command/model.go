package command

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"rollout/gpuworker/engine/tiny/weights"
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
	dir             *string
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

// load reads the model.
func (s *modelSource) load(c *cobra.Command, e *Env) (*weights.Bundle, error) {
	switch {
	case s.snapshot != "":
		return s.loadSnapshot(c, e)
	case s.model == tinyName:
		return weights.Shipped()
	}
	return loadModel(s.model)
}

// loadModel reads a file of weights, or the one in a folder. That it is not
// there is an error of the command line.
func loadModel(path string) (*weights.Bundle, error) {
	info, err := os.Stat(path)
	if err == nil && info.IsDir() {
		if _, err := os.Stat(filepath.Join(path, headFile)); err == nil {
			return nil, &fault.Error{Kind: fault.Invalid, Err: fmt.Errorf("%s holds a reward model, which gives scores and no text", path), Remedy: "read its model.safetensors and head.safetensors as they are"}
		}
		path = filepath.Join(path, weightsFile)
		info, err = os.Stat(path)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil, &fault.Error{Kind: fault.Invalid, Err: err, Remedy: "--model is tiny, a file of weights, or a folder with a " + weightsFile}
	}
	if err != nil {
		return nil, fault.As(fault.Denied, err, "read the model")
	}
	if info.Size() > maxWeights {
		return nil, fault.New(fault.Invalid, "%s has %s: weights have at most %s", path, humanize.IBytes(uint64(info.Size())), humanize.IBytes(maxWeights))
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, fault.As(fault.Denied, err, "read the model")
	}
	m, err := weights.Load(b)
	return m, fault.Wrap(err, "%s", path)
}

// loadSnapshot reads the model out of a snapshot, all of which is checked
// before.
func (s *modelSource) loadSnapshot(c *cobra.Command, e *Env) (m *weights.Bundle, err error) {
	_, store, closeAll, err := e.openSnapshots(c, *s.dir)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, closeAll()) }()
	snap, err := findSnapshot(c.Context(), store, s.snapshot)
	if err != nil {
		return nil, err
	}
	temp, err := os.MkdirTemp("", "rollout-model-")
	if err != nil {
		return nil, fault.As(fault.Exhausted, err, "make room for the snapshot")
	}
	defer func() { err = errors.Join(err, os.RemoveAll(temp)) }()
	state := filepath.Join(temp, "state")
	if err := store.Restore(c.Context(), snap, state); err != nil {
		return nil, err
	}
	m, err = loadModel(state)
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
}

func modelShowCommand(e *Env) *cobra.Command {
	c := &cobra.Command{Use: "show", Short: "Show what a model is", Args: arguments(0)}
	source := modelFlags(c)
	asJSON := c.Flags().Bool("json", false, "print a JSON object")
	c.RunE = func(c *cobra.Command, _ []string) error {
		m, err := source.load(c, e)
		if err != nil {
			return err
		}
		k := m.Model.Config()
		f := modelFacts{Name: m.Name, Digest: m.Digest, Parameters: k.Parameters(), Vocab: k.Vocab, Context: k.Context, Layers: k.Layers,
			Width: k.Width, Heads: k.Heads, HeadSize: k.HeadSize, Hidden: k.Hidden, Tokenizer: m.Tokenizer.Hash()}
		if *asJSON {
			return writeJSON(e.Out, f)
		}
		var sc screen
		for _, line := range [][2]string{
			{"model", f.Name},
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
