package command

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"rollout/gpuworker/tinylm/export"
	"rollout/shared/fault"
)

func modelExportCommand(e *Env) *cobra.Command {
	c := &cobra.Command{
		Use:   "export",
		Short: "Write a model for llama.cpp, Hugging Face's libraries, vLLM and the like",
		Long: "Writes a model in a format that other software reads:\n\n" +
			"  gguf         one file, for llama.cpp and what builds on it\n" +
			"  safetensors  a folder as Hugging Face's libraries and vLLM want it, with config and tokenizer;\n" +
			"               reward models, too, as LlamaForSequenceClassification with one label\n\n" +
			"The same model gives the same bytes. --out appears whole or not at all, and must not exist.",
		Args: arguments(0),
	}
	source := modelFlags(c)
	source.chatFlag(c)
	format := c.Flags().String("format", "gguf", "gguf or safetensors")
	encoding := c.Flags().String("encoding", "f32", "how matrices are stored: f32, f16, bf16, or q8_0 (gguf only)")
	out := c.Flags().String("out", "", "the `file` or folder to write")
	c.RunE = func(c *cobra.Command, _ []string) error {
		enc, err := export.ParseEncoding(*encoding)
		if err != nil {
			return fault.Wrap(err, "--encoding")
		}
		if *format != "gguf" && *format != "safetensors" {
			return usage(c, "--format %s: it is gguf or safetensors", *format)
		}
		if *out == "" {
			return usage(c, "--out is missing: name the file or folder to write")
		}
		turns, err := source.turns(c)
		if err != nil {
			return err
		}
		b, err := source.read(c, e)
		if err != nil {
			return err
		}
		m := export.Model{Name: b.Name, Digest: b.Digest, Config: b.Model.Config(), Tensors: b.Model.Tensors(), Tokenizer: b.Tokenizer, ChatTurns: turns, RewardHead: b.head}
		if source.shipped() { // the card's
			m.Description, m.License = "a small model for trying things out, which learnt from the King James Bible and Newton's Opticks", "Apache-2.0"
		}
		err = whole(*out, func(path string) error {
			if *format == "gguf" {
				return writeFile(path, func(w io.Writer) error { return export.GGUF(w, m, enc) })
			}
			if err := os.Mkdir(path, 0o755); err != nil {
				return err
			}
			for _, f := range export.HuggingFace(m, enc) {
				if err := writeFile(filepath.Join(path, f.Name), f.Write); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return fault.Wrap(err, "export %s to %s", b.Name, *out)
		}
		_, err = fmt.Fprintf(e.Err, "%s is in %s\n", b.Name, *out)
		return err
	}
	return c
}

// whole has make write a file or folder beside path, and moves it there when
// it is complete. What is at path already is left alone and refused.
func whole(path string, make func(path string) error) (err error) {
	path = filepath.Clean(path)
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		if err != nil {
			return fault.WithKind(fault.Denied, err, "look whether it exists")
		}
		return &fault.Error{Kind: fault.Invalid, Err: errors.New("it exists"), Remedy: "remove it, or name another --out"}
	}
	temp, err := os.MkdirTemp(filepath.Dir(path), "."+filepath.Base(path)+".partial-")
	if err != nil {
		return &fault.Error{Kind: fault.Invalid, Err: err, Remedy: "name an --out in a folder that exists and can be written to"}
	}
	defer func() { err = errors.Join(err, os.RemoveAll(temp)) }()
	made := filepath.Join(temp, filepath.Base(path))
	if err := make(made); err != nil {
		return err
	}
	return fault.WithKind(fault.Denied, os.Rename(made, path), "put it in its place")
}

// writeFile makes a file that is on the disk when it returns.
func writeFile(path string, write func(io.Writer) error) error {
	f, err := os.Create(path)
	if err != nil {
		return fault.WithKind(fault.Denied, err, "make the file")
	}
	err = write(f)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); fault.Is(err, fault.Internal) { // the disk's
		err = fault.WithKind(fault.Exhausted, err, "write the file")
	}
	return err
}
