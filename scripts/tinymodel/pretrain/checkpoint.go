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

// A checkpoint is a folder such as "step-000500" with three files: the model, in
// the format of package weights, and the two moments. Its name ends with partSuffix
// until it is complete.
const (
	modelFile  = "model.safetensors"
	prefix     = "step-"
	partSuffix = ".part"
)

var momentFiles = [2]string{"first.safetensors", "second.safetensors"}

// The metadata keys of the moments' files.
const (
	keyStep   = "step"
	keyRecipe = "recipe"
	keyStream = "stream" // digest of the tokens
	keyModel  = "model"  // digest of the model's file
)

// keptCheckpoints is the number of checkpoints that Save keeps.
const keptCheckpoints = 2

// Save writes a checkpoint into the folder, and then removes all checkpoints except
// the last two. name is the model's name in the checkpoint.
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
	old := all[:max(0, len(all)-keptCheckpoints)]
	for _, name := range slices.Concat(old, incomplete(folder)) {
		err = errors.Join(err, os.RemoveAll(filepath.Join(folder, name)))
	}
	return fault.WithKind(fault.Unavailable, err, "remove old checkpoints")
}

// writeSynced writes a file and flushes it to disk.
func writeSynced(name string, b []byte) error {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	return errors.Join(err, f.Sync(), f.Close())
}

// checkpoints returns the names of complete checkpoints, oldest first.
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

// incomplete returns the names of incomplete checkpoints, which killed processes
// leave.
func incomplete(folder string) (out []string) {
	entries, _ := os.ReadDir(folder) // after an error, a later Save removes them
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), prefix) && strings.HasSuffix(e.Name(), partSuffix) {
			out = append(out, e.Name())
		}
	}
	return out
}

// steps returns the number of steps in a checkpoint's name.
func steps(name string) int {
	n, _ := strconv.Atoi(strings.TrimPrefix(name, prefix)) // checked by checkpoints
	return n
}

// Resume returns a trainer at the last checkpoint in the folder; ok is false if the
// folder has no checkpoint. A checkpoint with another recipe, other documents or
// another tokenizer is an Invalid fault; a damaged one is a Corrupt fault.
func Resume(
	folder string, r Recipe, tok *tokenizer.Tokenizer, s *Stream, threads int,
) (t *Trainer, ok bool, err error) {
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
		return nil, false, mismatch(at, "tokenizer", bundle.Tokenizer.Hash(), tok.Hash())
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

// check returns the step of a file of moments, or a fault if its metadata do not
// match the trainer's recipe and stream and the model's digest.
func (t *Trainer) check(at string, f *weights.File, digest string) (int, error) {
	recipe, err := json.Marshal(t.recipe)
	if err != nil {
		return 0, err
	}
	if have := f.Metadata[keyRecipe]; have != string(recipe) {
		return 0, mismatch(at, "recipe", have, string(recipe))
	}
	if have := f.Metadata[keyStream]; have != t.stream.Digest() {
		return 0, mismatch(at, "corpus", have, t.stream.Digest())
	}
	if have := f.Metadata[keyModel]; have != digest {
		return 0, fault.New(fault.Corrupt, "checkpoint %s: the moments belong to model %.16s, but the model is %.16s",
			at, have, digest)
	}
	step, err := strconv.Atoi(f.Metadata[keyStep])
	if err != nil || step < 0 || step > t.recipe.Steps {
		return 0, fault.New(fault.Corrupt, "checkpoint %s: step %q of %d", at, f.Metadata[keyStep], t.recipe.Steps)
	}
	return step, nil
}

// mismatch returns the fault of a checkpoint with another recipe, corpus or
// tokenizer.
func mismatch(at, what, have, want string) error {
	return &fault.Error{
		Kind: fault.Invalid, Op: "checkpoint " + at,
		Err:    fmt.Errorf("it has another %s: %s, not %s", what, have, want),
		Remedy: fmt.Sprintf("use the %s that it was made with, or choose another --out", what),
	}
}
