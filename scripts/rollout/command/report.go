package command

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"rollout/scripts/rollout/leaderboard"
	"rollout/scripts/rollout/outfile"
	"rollout/scripts/rollout/progress"
	"rollout/scripts/rollout/report"
	"rollout/shared/config"
	"rollout/shared/fault"
	"rollout/shared/host"
	"rollout/shared/record"
)

// reportFlags are the flags of `rollout report`.
type reportFlags struct {
	output   string
	json     bool
	variants string // two of them
	reduce   string
}

func reportCommand(e *Env) *cobra.Command {
	c := &cobra.Command{
		Use:   "report RUN",
		Short: "Write the report of an ended rollout, or of trials",
		Long: "Of a rollout, writes one HTML file that needs no network and no script: accuracy, agreement and scores by\n" +
			"step of the guidance and by batch, what changed the guidance, tickets that flipped, the hardest tickets,\n" +
			"votes, tokens and cost, failures, and the tickets to review. It contains the beginnings of prompts and\n" +
			"answers.\n\n" +
			"Of trials, prints how the variants compare: mean scores with intervals, all pairs, pass@k and pass^k, and\n" +
			"tasks that none or all solve. -o FILE writes that as an HTML file, with answers of tasks on which two\n" +
			"variants differ.\n\n" + runHelp,
		Args: arguments(0, "RUN"),
	}
	location := locationFlags(c)
	var f reportFlags
	c.Flags().StringVarP(&f.output, "output", "o", "",
		"the new `file` to write, or - for standard output (default of a rollout: RUN.html)")
	c.Flags().BoolVar(&f.json, "json", false, "print the report of trials as JSON")
	c.Flags().StringVar(&f.variants, "variants", "",
		"the two `names` A,B whose answers are compared (default: the two best)")
	c.Flags().StringVar(&f.reduce, "reduce", "",
		"the `name` of what makes the score of a task of those of its trials: mean, median, mode,\n"+
			"max, or at_least_K, of which K trials must be right (default mean)")
	c.RunE = func(c *cobra.Command, args []string) (err error) {
		r, err := e.openRun(c, *location, args[0])
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, r.Close()) }()
		m, err := host.LoadManifest(c.Context(), r.Ports.Docs, r.run.Run)
		if err != nil {
			return err
		}
		if err := hasReport(r, m); err != nil {
			return err
		}
		if m.Kind == config.KindTrials {
			return e.reportTrials(c, r, m, f)
		}
		if f.json || f.variants != "" || f.reduce != "" {
			return usage(c, "--json, --variants and --reduce are for trials, and run %s is a rollout", m.Run)
		}
		if f.output == "" {
			f.output = string(m.Run) + ".html"
		}
		return e.writeReport(f.output, func(w io.Writer) error {
			return report.Write(c.Context(), w, report.Run{Blobs: r.Ports.Blobs, Manifest: m})
		})
	}
	return c
}

// hasReport returns why the run has no report.
func hasReport(r *selectedRun, m record.Manifest) error {
	switch {
	case m.Kind != config.KindTrials && len(m.Config.Missions) == 0:
		return &fault.Error{Kind: fault.Invalid, Err: fmt.Errorf("run %s is not a rollout, and has no trials", m.Run),
			Remedy: "`rollout status " + r.Flags() + "` lists the runs: name one of the kind rollout or trials"}
	case !r.run.Phase.Ended():
		return &fault.Error{Kind: fault.Unavailable,
			Err:    fmt.Errorf("run %s has not ended: it is %s", r.run.Run, progress.FormatPhase(r.run.Phase)),
			Remedy: "wait for it with `rollout status " + string(r.run.Run) + " --watch " + r.Flags() + "`"}
	}
	return nil
}

// reportTrials prints how the variants of a run compare, or writes it as a page.
func (e *Env) reportTrials(c *cobra.Command, r *selectedRun, m record.Manifest, f reportFlags) error {
	if f.json && f.output != "" {
		return usage(c, "--json prints to standard output, and --output writes a page: name one of them")
	}
	o := leaderboard.Options{Reduce: f.reduce}
	if f.variants != "" {
		first, second, two := strings.Cut(f.variants, ",")
		if !two {
			return usage(c, "--variants names two variants, such as plain,terse, and not %.64q", f.variants)
		}
		o.First, o.Second = first, second
	}
	out, err := leaderboard.Read(c.Context(), leaderboard.Run{Blobs: r.Ports.Blobs, Manifest: m}, o)
	switch {
	case err != nil:
		return gone(err)
	case f.json:
		return json.NewEncoder(e.Out).Encode(out)
	case f.output == "":
		return leaderboard.WriteText(e.Out, out)
	}
	return e.writeReport(f.output, func(w io.Writer) error { return leaderboard.WritePage(w, out) })
}

// gone adds the remedy to the error of a run whose files are not there.
func gone(err error) error {
	if fault.Is(err, fault.NotFound) {
		return &fault.Error{Kind: fault.NotFound, Err: err,
			Remedy: "if files of the run were deleted, restore an older version from the bucket"}
	}
	return err
}

// writeReport writes a report to a new file, or to Out if path is "-".
func (e *Env) writeReport(path string, write func(io.Writer) error) error {
	if path == "-" {
		return gone(write(e.Out))
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
		return f.Discard(gone(err))
	}
	if err := f.CloseAndRenameNew(); err != nil {
		return err
	}
	_, err = fmt.Fprintln(e.Err, path)
	return err
}
