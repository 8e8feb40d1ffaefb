package batch

import (
	"context"
	"fmt"
	"io"
	"strings"

	"rollout/functions/dryrun"
	"rollout/scripts/rollout/promptsfile"
	"rollout/shared/config"
	"rollout/shared/dialect"
)

// Report is the result of Check, and what --dry-run --json prints.
type Report = dryrun.Report

// Check reads and parses every line of every file, as a run of the config would: see dryrun.Check.
func Check(ctx context.Context, c config.Run, engine config.Engine, files []string) (Report, error) {
	return CheckEach(ctx, c, engine, files, nil)
}

// CheckEach is Check, and calls each for every line that the run would ask, in order, with the line's bytes, which are
// valid until each returns. With an each that is not nil, the Report has no members, endpoints and requests.
func CheckEach(
	ctx context.Context, c config.Run, engine config.Engine, files []string,
	each func(line []byte, it *dialect.Item) error,
) (Report, error) {
	return checkFiles(ctx, c, engine, files, dryrun.Options{Each: each})
}

func checkFiles(
	ctx context.Context, c config.Run, engine config.Engine, files []string, o dryrun.Options,
) (Report, error) {
	var all []dryrun.File
	for _, path := range files {
		all = append(all, dryrun.File{Name: path, Open: func(ctx context.Context) (io.ReadCloser, error) {
			return promptsfile.Open(ctx, path, c.Input.MaxUnpacked)
		}})
	}
	return dryrun.Check(ctx, c, engine, all, o)
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
