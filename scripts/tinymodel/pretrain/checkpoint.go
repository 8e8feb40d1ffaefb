package pretrain

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"rollout/gpuworker/tinylm/tokenizer"
	"rollout/gpuworker/tinylm/weights"
	"rollout/shared/fault"
)

// A checkpoint is a folder "step-000500" with three files: the model, which can
// be used as it is, and the two moments. It appears under its name when it is
// complete.
const (
	modelFile = "model.safetensors"
	prefix    = "step-"
)

// partSuffix is at the end of a checkpoint's name until it is complete.
const partSuffix = ".part"

var momentFiles = [2]string{"first.safetensors", "second.safetensors"}

// Names of the moments' metadata.
const (
	keyStep   = "step"
	keyRecipe = "recipe"
	keyStream = "stream" // digest of the tokens
	keyModel  = "model"  // digest of the file
)

// keep is how many checkpoints Save leaves.
const keep = 2

// Save writes a checkpoint into the folder, under the model's name, and removes
// all but the last two.
func (t *Trainer) Save(folder, name string) error {
	final := filepath.Join(folder, fmt.Sprintf("%s%06d", prefix, t.done))
	part := final + partSuffix
	if err := errors.Join(os.RemoveAll(part), os.MkdirAll(part, 0o755)); err != nil {
		return fault.WithKind(fault.Unavailable, err, "save a checkpoint")
	}
	b, err := weights.Pack(name, t.model, t.tokenizer, weights.F32)
	if err != nil {
		return err
	}
	saved, err := weights.Load(b)
	if err != nil {
		return fault.Wrap(err, "save a checkpoint")
	}
	recipe, err := json.Marshal(t.recipe)
	if err != nil {
		return err
	}
	files := map[string][]byte{modelFile: b}
	for i, name := range momentFiles {
		f := weights.File{Tensors: t.moments[i].Tensors(), Metadata: map[string]string{
			keyStep: strconv.Itoa(t.done), keyRecipe: string(recipe), keyStream: t.stream.Digest(), keyModel: saved.Digest,
		}}
		if files[name], err = f.Encode(weights.F32); err != nil {
			return err
		}
	}
	for name, b := range files {
		if err := writeSynced(filepath.Join(part, name), b); err != nil {
			return fault.WithKind(fault.Unavailable, err, "save a checkpoint")
		}
	}
	if err := errors.Join(os.RemoveAll(final), os.Rename(part, final)); err != nil {
		return fault.WithKind(fault.Unavailable, err, "save a checkpoint")
	}
	all, err := checkpoints(folder)
	old := all[:max(0, len(all)-keep)]
	for _, name := range slices.Concat(old, parts(folder)) {
		err = errors.Join(err, os.RemoveAll(filepath.Join(folder, name)))
	}
	return fault.WithKind(fault.Unavailable, err, "remove old checkpoints")
}

func writeSynced(name string, b []byte) error {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	return errors.Join(err, f.Sync(), f.Close())
}

// checkpoints lists the folders of complete checkpoints, the oldest first.
func checkpoints(folder string) ([]string, error) {
	entries, err := os.ReadDir(folder)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var out []string
	for _, e := range entries {
		digits, ok := strings.CutPrefix(e.Name(), prefix)
		if _, err := strconv.Atoi(digits); ok && err == nil && e.IsDir() {
			out = append(out, e.Name())
		}
	}
	slices.SortFunc(out, func(a, b string) int { return steps(a) - steps(b) })
	return out, err
}

// parts lists what was left of checkpoints by processes that were killed.
func parts(folder string) (out []string) {
	entries, _ := os.ReadDir(folder) // what can't be listed can't be removed
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), prefix) && strings.HasSuffix(e.Name(), partSuffix) {
			out = append(out, e.Name())
		}
	}
	return out
}

func steps(name string) int {
	n, _ := strconv.Atoi(strings.TrimPrefix(name, prefix)) // checked by checkpoints
	return n
}

// Resume goes on from the last checkpoint in the folder; ok is false if there
// is none. A checkpoint of another recipe, other documents or another tokenizer
// is Invalid, a damaged one Corrupt.
func Resume(folder string, r Recipe, tok *tokenizer.Tokenizer, s *Stream, threads int) (t *Trainer, ok bool, err error) {
	all, err := checkpoints(folder)
	if err != nil || len(all) == 0 {
		return nil, false, fault.WithKind(fault.Unavailable, err, "look for checkpoints")
	}
	at := filepath.Join(folder, all[len(all)-1])
	b, err := os.ReadFile(filepath.Join(at, modelFile))
	if err != nil {
		return nil, false, fault.WithKind(fault.Corrupt, err, "checkpoint %s", at)
	}
	bundle, err := weights.Load(b)
	if err != nil {
		return nil, false, fault.Wrap(err, "checkpoint %s", at)
	}
	if bundle.Tokenizer.Hash() != tok.Hash() {
		return nil, false, other(at, "tokenizer", bundle.Tokenizer.Hash(), tok.Hash())
	}
	t = newTrainer(r, tok, s, bundle.Model, threads)
	for i, name := range momentFiles {
		f, err := readFile(filepath.Join(at, name))
		if err != nil {
			return nil, false, err
		}
		if t.done, err = t.check(at, f, bundle.Digest); err != nil {
			return nil, false, err
		}
		for j, have := range t.moments[i].Tensors() {
			if j >= len(f.Tensors) || f.Tensors[j].Name != have.Name || len(f.Tensors[j].Data) != len(have.Data) {
				return nil, false, fault.New(fault.Corrupt, "checkpoint %s: %s has no moments of %s", at, name, have.Name)
			}
			copy(have.Data, f.Tensors[j].Data)
		}
	}
	return t, true, nil
}

func readFile(name string) (*weights.File, error) {
	b, err := os.ReadFile(name)
	if err != nil {
		return nil, fault.WithKind(fault.Corrupt, err, "checkpoint")
	}
	f, err := weights.Decode(b)
	return f, fault.Wrap(err, "checkpoint %s", name)
}

// check compares what a file of moments says with what is asked for, and
// returns its step.
func (t *Trainer) check(at string, f *weights.File, digest string) (int, error) {
	recipe, err := json.Marshal(t.recipe)
	if err != nil {
		return 0, err
	}
	if have := f.Metadata[keyRecipe]; have != string(recipe) {
		return 0, other(at, "recipe", have, string(recipe))
	}
	if have := f.Metadata[keyStream]; have != t.stream.Digest() {
		return 0, other(at, "corpus", have, t.stream.Digest())
	}
	if have := f.Metadata[keyModel]; have != digest {
		return 0, fault.New(fault.Corrupt, "checkpoint %s: the moments belong to the model %.16s, beside them is %.16s", at, have, digest)
	}
	step, err := strconv.Atoi(f.Metadata[keyStep])
	if err != nil || step < 0 || step > t.recipe.Steps {
		return 0, fault.New(fault.Corrupt, "checkpoint %s: step %q of %d", at, f.Metadata[keyStep], t.recipe.Steps)
	}
	return step, nil
}

func other(at, what, have, want string) error {
	return &fault.Error{
		Kind: fault.Invalid, Op: "checkpoint " + at,
		Err:    fmt.Errorf("it is of the %s %s, not %s", what, have, want),
		Remedy: "give what it was made with, or another --out",
	}
}
