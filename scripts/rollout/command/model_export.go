package command

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"rollout/gpuworker/tinylm/export"
	"rollout/scripts/rollout/outfile"
	"rollout/shared/disk"
	"rollout/shared/fault"
)

func modelExportCommand(e *Env) *cobra.Command {
	c := &cobra.Command{
		Use:   "export",
		Short: "Export a model for llama.cpp, Hugging Face libraries or vLLM",
		Long: "Writes a model in a format that other software reads:\n\n" +
			"  gguf         a file for llama.cpp and software based on it\n" +
			"  safetensors  a folder for Hugging Face libraries and vLLM, with config and tokenizer; a reward model is\n" +
			"               exported as LlamaForSequenceClassification with one label\n\n" +
			"The same model always produces the same bytes. --out must not exist; it appears complete or not at all.",
		Args: arguments(0),
	}
	source := modelFlags(c)
	source.chatFlag(c)
	format := c.Flags().String("format", "gguf", "`format` to write: gguf or safetensors")
	encoding := c.Flags().String("encoding", "f32", "`encoding` of matrices: f32, f16, bf16 or q8_0 (only gguf)")
	out := c.Flags().String("out", "", "the `file` or folder to write")
	c.RunE = func(c *cobra.Command, _ []string) error {
		enc, err := export.ParseEncoding(*encoding)
		if err != nil {
			return fault.Wrap(err, "--encoding")
		}
		if *format != "gguf" && *format != "safetensors" {
			return usage(c, "--format %s: use gguf or safetensors", *format)
		}
		if *out == "" {
			return usage(c, "--out is missing: name the file or folder to write")
		}
		turns, err := source.chatTurns(c)
		if err != nil {
			return err
		}
		b, err := source.load(c, e)
		if err != nil {
			return err
		}
		m := export.Model{
			Name: b.Name, Digest: b.Digest, Config: b.Model.Config(), Tensors: b.Model.Tensors(),
			Tokenizer: b.Tokenizer, ChatTurns: turns, RewardHead: b.head,
		}
		if source.builtIn() { // as in the model card
			m.Description = "a small model for trying things out, which learnt from the King James Bible and Newton's Opticks"
			m.License = "Apache-2.0"
		}
		err = createWhole(*out, func(path string) error {
			if *format == "gguf" {
				return outfile.Write(path, func(w io.Writer) error { return export.GGUF(w, m, enc) })
			}
			if err := os.Mkdir(path, 0o755); err != nil {
				return err
			}
			for _, f := range export.HuggingFace(m, enc) {
				if err := outfile.Write(filepath.Join(path, f.Name), f.Write); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return fault.Wrap(err, "export %s to %s", b.Name, *out)
		}
		err = e.say("exported %s to %s", b.Name, *out)
		return err
	}
	return c
}

// createWhole calls create with the path of a new file or folder in a temporary folder next to path, and renames the
// result to path. It is Invalid if path exists already.
func createWhole(path string, create func(path string) error) (err error) {
	path = filepath.Clean(path)
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		if err != nil {
			return fault.WithKind(fault.Denied, err, "check whether it exists")
		}
		return &fault.Error{Kind: fault.Invalid, Err: errors.New("it already exists"),
			Remedy: "remove it, or name another --out"}
	}
	temp, err := os.MkdirTemp(filepath.Dir(path), "."+filepath.Base(path)+".partial-")
	if err != nil {
		return &fault.Error{Kind: fault.Invalid, Err: err, Remedy: "name an --out in an existing, writable folder"}
	}
	defer func() { err = errors.Join(err, os.RemoveAll(temp)) }()
	created := filepath.Join(temp, filepath.Base(path))
	if err := create(created); err != nil {
		return err
	}
	return fault.WithKind(fault.Denied, disk.Rename(disk.System{}, created, path, true), "rename the finished export")
}
