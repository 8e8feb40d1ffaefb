package command

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"rollout/scripts/rollout/outfile"
	"rollout/scripts/rollout/progress"
	"rollout/scripts/rollout/report"
	"rollout/shared/fault"
)

func reportCommand(e *Env) *cobra.Command {
	c := &cobra.Command{
		Use:   "report RUN",
		Short: "Write the report of an ended rollout as an HTML page",
		Long: "Writes one HTML file that needs no network and no script: accuracy, agreement and scores by step of the\n" +
			"guidance and by batch, what changed the guidance, tickets that flipped, the hardest tickets, votes, tokens and\n" +
			"cost, failures, and the tickets to review. It contains the beginnings of prompts and answers.\n\n" + runHelp,
		Args: arguments(0, "RUN"),
	}
	location := locationFlags(c)
	output := c.Flags().StringP("output", "o", "", "the new `file` to write, or - for standard output (default: RUN.html)")
	c.RunE = func(c *cobra.Command, args []string) (err error) {
		r, err := e.openRollout(c, openArguments{*location, args[0], ""})
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, r.Close()) }()
		if !r.run.Phase.Ended() {
			return &fault.Error{Kind: fault.Unavailable,
				Err:    fmt.Errorf("run %s has not ended: it is %s", r.run.Run, progress.FormatPhase(r.run.Phase)),
				Remedy: "wait for it with `rollout status " + string(r.run.Run) + " --watch " + r.Flags() + "`"}
		}
		if *output == "" {
			*output = string(r.run.Run) + ".html"
		}
		return e.report(c, r, *output)
	}
	return c
}

// report writes the report to a new file, or to Out if path is "-".
func (e *Env) report(c *cobra.Command, r *rolloutRun, path string) error {
	write := func(w io.Writer) error {
		err := report.Write(c.Context(), w, report.Run{Blobs: r.Ports.Blobs, Manifest: r.manifest})
		if fault.Is(err, fault.NotFound) {
			return &fault.Error{Kind: fault.NotFound, Err: err,
				Remedy: "if files of the run were deleted, restore an older version from the bucket"}
		}
		return err
	}
	if path == "-" {
		return write(e.Out)
	}
	if _, err := os.Lstat(path); err == nil { // fails early; CloseAndRenameNew checks again
		return outfile.Exists(path)
	}
	f, err := outfile.Create(path)
	if err != nil {
		return &fault.Error{Kind: fault.Invalid, Op: "write the report", Err: err,
			Remedy: "name a writable path with --output"}
	}
	if err := write(f); err != nil {
		return f.Discard(err)
	}
	if err := f.CloseAndRenameNew(); err != nil {
		return err
	}
	_, err = fmt.Fprintln(e.Err, path)
	return err
}
