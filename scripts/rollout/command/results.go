package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"rollout/scripts/rollout/progress"
	"rollout/scripts/rollout/results"
	"rollout/scripts/rollout/terminal"
	"rollout/shared/blob"
	"rollout/shared/disk"
	"rollout/shared/fault"
	"rollout/shared/host"
	"rollout/shared/record"
)

func resultsCommand(e *Env) *cobra.Command {
	c := &cobra.Command{
		Use:   "results RUN",
		Short: "Write the completions of a run",
		Long: "Writes the completions of RUN to standard output, or to --output, and checks their number against the\n" +
			"run's summary.\n\n" +
			"With --partial it writes those that a run has so far: the first rows of the file that it will have. With\n" +
			"--follow it goes on until the run has ended. Both write in the order of the input, also of a paused run.\n\n" +
			"The exit code is 0 if the run answered all items; 1 if items failed, the run ended early or, without --partial,\n" +
			"has not ended; 2 if the command line is invalid. Of a run that has expired, RUN is the id.\n\n" + runHelp,
		Args: arguments(0, "RUN"),
	}
	location := locationFlags(c)
	output := c.Flags().StringP("output", "o", "", "the new `file` to write, or a folder for all files of the run")
	failed := c.Flags().Bool("errors", false, "write the error lines of items without a completion instead")
	partial := c.Flags().Bool("partial", false, "write the rows that a run has so far")
	follow := c.Flags().Bool("follow", false, "write rows as they come, until the run has ended")
	c.RunE = func(c *cobra.Command, args []string) (err error) {
		r, err := e.openRun(c, *location, args[0])
		if host.IsExpired(err) {
			r, err = e.openExpired(c, *location, err)
			*follow = false
		}
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, r.Close()) }()
		if (*partial || *follow) && (*follow || !r.run.Phase.Ended()) {
			return e.tail(c, r, *output, *failed, *follow)
		}
		return e.results(c, r, *output, *failed)
	}
	return c
}

func (e *Env) results(c *cobra.Command, r *selectedRun, output string, failed bool) error {
	if !r.run.Phase.Ended() {
		return &fault.Error{Kind: fault.Unavailable,
			Err: fmt.Errorf("run %s has not ended: it is %s", r.run.Run, progress.FormatPhase(r.run.Phase)),
			Remedy: "read what it has with --partial, or wait for it with `rollout status " + string(r.run.Run) +
				" --watch " + r.Flags() + "`"}
	}
	files, err := results.Load(c.Context(), r.Ports.Blobs, r.run.Run)
	if fault.Is(err, fault.NotFound) { // only a refused run ends before its summary is written
		return &fault.Error{Kind: fault.Unavailable, Err: err,
			Op:     fmt.Sprintf("run %s has ended, but its summary is missing", r.run.Run),
			Remedy: "try again in a moment; if it was deleted, restore an older version from the bucket"}
	}
	if err != nil {
		return err
	}
	w := resultWriter{Env: e, Files: files, blobs: r.Ports.Blobs}
	name := record.CompletionsFile
	if failed {
		name = record.ErrorsFile
	}
	switch folder := isFolder(output); {
	case folder && failed:
		return usage(c, "--errors writes one file, but --output %s is a folder", output)
	case folder:
		err = w.folder(c.Context(), output)
	case files.Summary.Training != nil:
		return usage(c, "a training has several files: name a folder with --output, such as %s/", r.run.Name)
	default:
		err = w.one(c.Context(), name, output)
	}
	if fault.Is(err, fault.NotFound) { // the run was refused and has no files
		err = nil
	}
	if err != nil {
		return err
	}
	if r.expired {
		return progress.Outcome(r.run, r.Path)
	}
	return progress.OutcomeOfInstalled(r.run, r.Path)
}

// isFolder reports whether the path is a folder, or ends in a slash.
func isFolder(path string) bool {
	info, err := os.Stat(path)
	return strings.HasSuffix(path, "/") || err == nil && info.IsDir()
}

// resultWriter copies a run's files to where the user wants them.
type resultWriter struct {
	*Env
	results.Files
	blobs blob.Store
}

// one writes an object to a file, or to standard output if path is empty.
func (w resultWriter) one(ctx context.Context, name, path string) error {
	info, err := w.Object(name)
	if err != nil {
		return err
	}
	if path == "" {
		bar := io.Discard
		if !terminal.Is(w.Out) { // on a terminal, a bar would mix with the rows
			bar = w.Err
		}
		t := w.transfer(bar, name, info.Size)
		defer t.Close()
		return w.Copy(ctx, w.blobs, info, t.Writer(w.Out))
	}
	return w.save(ctx, info, path)
}

// folder writes all objects into a folder, which it creates if necessary. If one of the files exists, it writes none.
func (w resultWriter) folder(ctx context.Context, path string) error {
	if err := disk.MakeFolder(disk.System{}, path); err != nil {
		return &fault.Error{Kind: fault.Invalid, Op: "create the folder", Err: err,
			Remedy: "name a writable path with --output"}
	}
	for _, info := range w.Objects {
		if err := results.CheckNotExists(filepath.Join(path, w.Name(info))); err != nil {
			return err
		}
	}
	for _, info := range w.Objects {
		to := filepath.Join(path, filepath.FromSlash(w.Name(info)))
		if err := disk.MakeFolder(disk.System{}, filepath.Dir(to)); err != nil {
			return &fault.Error{Kind: fault.Invalid, Op: "create the folder", Err: err,
				Remedy: "name a writable path with --output"}
		}
		if err := w.save(ctx, info, to); err != nil {
			return err
		}
	}
	return nil
}

func (w resultWriter) save(ctx context.Context, info blob.Info, path string) error {
	t := w.transfer(w.Err, path, info.Size)
	err := w.Save(ctx, w.blobs, info, path, t.Writer)
	t.Close()
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(w.Err, path)
	return err
}
