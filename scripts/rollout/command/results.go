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
	"rollout/shared/blob"
	"rollout/shared/fault"
	"rollout/shared/record"
)

func resultsCommand(e *Env) *cobra.Command {
	c := &cobra.Command{
		Use:   "results RUN",
		Short: "Write what a run that has ended answered",
		Long: "Writes the answers of RUN to standard output, or to --output, and looks whether as many are there as the run counted.\n\n" +
			"RUN is a run's id, an unambiguous beginning of it, or a name: then the newest run of that name.\n\n" +
			"It ends with 0 if the run did all it was asked to; with 1 if items of it failed, it was ended before, or it goes on;\n" +
			"with 2 if the command line is wrong.",
		Args: arguments(0, "RUN"),
	}
	place := placeFlags(c)
	output := c.Flags().StringP("output", "o", "", "the new `file` to write, or a folder: then all that the run wrote")
	failed := c.Flags().Bool("errors", false, "write a line for each item that has no answer instead")
	c.RunE = func(c *cobra.Command, args []string) (err error) {
		r, err := e.openRun(c, *place, args[0])
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, r.Close()) }()
		return e.results(c, r, *output, *failed)
	}
	return c
}

func (e *Env) results(c *cobra.Command, r *chosen, output string, failed bool) error {
	if !r.run.Phase.Ended() {
		return &fault.Error{Kind: fault.Unavailable, Err: fmt.Errorf("run %s has not ended: it is %s", r.run.Run, progress.FormatPhase(r.run.Phase)),
			Remedy: "`rollout status " + string(r.run.Run) + " --watch " + r.Flags() + "` waits for it"}
	}
	files, err := results.Load(c.Context(), r.Ports.Blobs, r.run.Run)
	if fault.Is(err, fault.NotFound) { // it is written before a run ends, but for one that is refused
		return &fault.Error{Kind: fault.Unavailable, Op: fmt.Sprintf("run %s has ended, and its summary is not there", r.run.Run), Err: err,
			Remedy: "try again in a moment; if it stays away, somebody removed it, and the bucket may still keep an older version"}
	}
	if err != nil {
		return err
	}
	b := bringer{Env: e, Files: files, blobs: r.Ports.Blobs}
	name := record.CompletionsFile
	if failed {
		name = record.ErrorsFile
	}
	switch folder := isFolder(output); {
	case folder && failed:
		return usage(c, "--errors names one file, and %s is a folder, into which all are written", output)
	case folder:
		err = b.folder(c.Context(), output)
	case files.Summary.Training != nil:
		return usage(c, "a training writes several files: name a folder with --output, such as %s/", r.run.Name)
	default:
		err = b.one(c.Context(), name, output)
	}
	if fault.Is(err, fault.NotFound) { // refused before it wrote anything
		err = nil
	}
	if err != nil {
		return err
	}
	return progress.Outcome(r.run, r.Path)
}

// isFolder reports whether the path names a folder, there or not.
func isFolder(path string) bool {
	info, err := os.Stat(path)
	return strings.HasSuffix(path, "/") || err == nil && info.IsDir()
}

// bringer writes a run's files to where its user wants them.
type bringer struct {
	*Env
	results.Files
	blobs blob.Store
}

// one writes an object to a file, or to standard output if path is empty.
func (b bringer) one(ctx context.Context, name, path string) error {
	info, err := b.Object(name)
	if err != nil {
		return err
	}
	if path == "" {
		shown := io.Discard
		if !progress.IsTerminal(b.Out) { // the rows themselves show how far it is
			shown = b.Err
		}
		t := progress.NewTransfer(shown, name, info.Size)
		defer t.Close()
		return b.Copy(ctx, b.blobs, info, t.Writer(b.Out))
	}
	return b.save(ctx, info, path)
}

// folder writes all objects into a folder, which is made if it is not there.
func (b bringer) folder(ctx context.Context, path string) error {
	if err := os.MkdirAll(path, 0o755); err != nil {
		return &fault.Error{Kind: fault.Invalid, Op: "make the folder", Err: err, Remedy: "name a place that can be written with --output"}
	}
	for _, info := range b.Objects { // before any is brought
		if err := results.CheckNotExists(filepath.Join(path, b.Name(info))); err != nil {
			return err
		}
	}
	for _, info := range b.Objects {
		if err := b.save(ctx, info, filepath.Join(path, b.Name(info))); err != nil {
			return err
		}
	}
	return nil
}

func (b bringer) save(ctx context.Context, info blob.Info, path string) error {
	t := progress.NewTransfer(b.Err, filepath.Base(path), info.Size)
	err := b.Save(ctx, b.blobs, info, path, t.Writer)
	t.Close()
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(b.Err, path)
	return err
}
