package command

import (
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"rollout/functions/finalize"
	"rollout/scripts/rollout/progress"
	"rollout/scripts/rollout/results"
	"rollout/shared/config"
	"rollout/shared/core/run"
	"rollout/shared/fault"
	"rollout/shared/figures"
	"rollout/shared/input"
	"rollout/shared/record"
)

// tail writes the rows that a run has so far and, with follow, those that come until it has ended.
func (e *Env) tail(c *cobra.Command, r *selectedRun, output string, failed, follow bool) (err error) {
	switch {
	case isFolder(output):
		return usage(c, "--partial and --follow write one file, but --output %s is a folder", output)
	case r.run.Kind == config.KindTrain:
		return usage(c, "a training has no rows before its end")
	}
	to := e.Out
	if output != "" {
		f, err := createNew(output)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, f.Close()) }()
		to = f
	}
	name := record.CompletionsFile
	if failed {
		name = record.ErrorsFile
	}
	o := finalize.Options{}
	if r.Cloud != "" {
		o.Segments = &finalize.SegmentOptions{} // reads results ahead
	}
	f := finalize.New(r.Ports, input.NewIndex(r.Ports.Blobs, r.Ports.Docs), o)
	t, err := f.Tail(c.Context(), r.run.Run, name, to)
	if err != nil {
		return err
	}
	s, err := t.Advance(c.Context())
	tick := time.NewTicker(r.Poll)
	defer tick.Stop()
	for err == nil && follow && !s.Phase.Ended() {
		select {
		case <-tick.C:
			s, err = t.Advance(c.Context())
		case <-c.Context().Done():
			return &fault.Error{Kind: fault.Canceled, Err: fmt.Errorf("stopped following run %s, which continues", r.run.Run),
				Remedy: "`rollout status` shows it"}
		}
	}
	if err != nil {
		return err
	}
	if s.Phase.Ended() {
		ended, err := r.service.Show(c.Context(), r.run.Run)
		if err != nil {
			return err
		}
		return progress.OutcomeOfInstalled(ended, r.Path)
	}
	return e.notePartial(t, s)
}

// createNew creates a file that does not exist yet.
func createNew(path string) (*os.File, error) {
	if err := results.CheckNotExists(path); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return nil, &fault.Error{Kind: fault.Invalid, Op: "write the results", Err: err,
			Remedy: "name a writable path with --output"}
	}
	return f, nil
}

// notePartial says how far the rows of a run that has not ended go.
func (e *Env) notePartial(t *finalize.Tail, s run.State) error {
	answered, failed := t.Rows()
	return e.say("the run is %s: these are the rows of its first %s, of which %s failed",
		progress.FormatPhase(s.Phase), figures.Of(answered+failed, "item"), progress.Count(failed))
}
