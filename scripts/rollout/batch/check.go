package batch

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"rollout/shared/config"
	"rollout/shared/dialect"
	"rollout/shared/fault"
	"rollout/shared/input"
	"rollout/shared/jsonl"
)

// Report is the result of Check.
type Report struct {
	Items    uint64   // lines that are not blank
	Bad      int      // items that cannot be sent to an engine
	Warnings []string // descriptions of the first bad lines
}

// maxWarnings limits the bad lines that Report describes one by one.
const maxWarnings = 20

// Check reads and parses every line of every file, as the run would. Bad lines are counted in the Report; a file that
// cannot be read is an error.
func Check(ctx context.Context, c config.Infer, files []string) (Report, error) {
	var r Report
	name := dialect.Name(c.Input.Dialect)
	for _, f := range files {
		if err := r.file(ctx, c, f, &name); err != nil {
			return r, fault.Wrap(err, "%s", f)
		}
	}
	if r.Bad > maxWarnings {
		r.Warnings = append(r.Warnings, fmt.Sprintf("and %d more bad lines", r.Bad-maxWarnings))
	}
	return r, nil
}

func (r *Report) file(ctx context.Context, c config.Infer, path string, name *dialect.Name) error {
	f, err := os.Open(path)
	if err != nil {
		return fault.WithKind(fault.Invalid, err, "open")
	}
	defer f.Close() // opened for reading: closing loses nothing
	packed, _ := input.Packing(path)
	u, err := input.Unpack(f, packed)
	if err != nil {
		return fault.WithKind(fault.Invalid, err, "unpack")
	}
	defer u.Close()
	content := bufio.NewReaderSize(u, jsonl.RecognizeLen)
	head, err := content.Peek(jsonl.RecognizeLen)
	if err != nil && !errors.Is(err, io.EOF) {
		return fault.WithKind(fault.Invalid, err, "read")
	}
	if err := jsonl.Recognize(path, head, err != nil); err != nil {
		return err
	}
	lines := jsonl.NewScanner(content, jsonl.Options{})
	for {
		l, err := lines.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fault.WithKind(fault.Invalid, err, "read")
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		if l.Blank {
			continue
		}
		if *name == "" {
			*name = dialect.Detect(l.Bytes)
		}
		r.Items++
		if err := checkLine(c, *name, l); err != nil {
			if r.Bad++; r.Bad <= maxWarnings {
				r.Warnings = append(r.Warnings, fmt.Sprintf("%s:%d: %v", path, l.Number, err))
			}
		}
	}
}

func checkLine(c config.Infer, name dialect.Name, l jsonl.Line) error {
	if l.TooLong {
		return &fault.Error{Kind: fault.Invalid, Err: fmt.Errorf("the line has %d bytes, more than 16 MiB", l.Length),
			Remedy: "shorten or split it"}
	}
	it, err := dialect.Parse(name, l.Bytes)
	if err != nil {
		return err
	}
	if err := it.CheckModel(c.Model.URI, c.Request); err != nil {
		return err
	}
	_, err = dialect.NewSettings(c.Request, c.Engine.Request).Target(it)
	return err
}

// gated lists name prefixes of models that need a Hugging Face token to be loaded.
var gated = [...]string{"meta-llama/", "mistralai/"}

// GatedWarning returns a warning if the model needs a token and the environment has none, else nil.
func GatedWarning(model string, getenv func(string) string) []string {
	for _, p := range gated {
		if strings.HasPrefix(model, p) && getenv("ROLLOUT_SECRET_HF_TOKEN") == "" {
			return []string{fmt.Sprintf("the model %s is gated and ROLLOUT_SECRET_HF_TOKEN is not set:"+
				" the engine may be unable to load it", model)}
		}
	}
	return nil
}
