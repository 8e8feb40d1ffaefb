package command

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"rollout/scripts/rollout/batch"
	"rollout/scripts/rollout/progress"
	"rollout/shared/config"
	"rollout/shared/fault"
	"rollout/shared/figures"
)

const dryRunUsage = "only check the config and every line, and show three requests; exit with 1 if lines are bad"

// dryRun reads everything that the run would read, and sends no request. what ends the line that says the result.
func (e *Env) dryRun(
	ctx context.Context, run config.Run, engine config.Request, files []string, what string, asJSON bool,
) error {
	report, err := batch.Check(ctx, run, engine, files)
	if err != nil {
		return err
	}
	report.Warnings = append(report.Warnings, batch.GatedWarning(run.Model.URI, e.Getenv)...)
	if asJSON {
		b, err := json.Marshal(report)
		if err != nil {
			return err
		}
		if _, err := fmt.Fprintf(e.Out, "%s\n", b); err != nil {
			return err
		}
	} else if err := e.printDryRun(report, what); err != nil {
		return err
	}
	if report.Bad > 0 {
		return &fault.Error{Kind: fault.Conflict, Err: fmt.Errorf("%s of %s invalid",
			figures.Count(report.Bad), figures.OfMany(report.Items, "line is", "lines are")),
			Remedy: "correct them; a run answers all other lines and writes an error line for each of these"}
	}
	return nil
}

// printDryRun writes the details for people to Err, and one line for programs to Out.
func (e *Env) printDryRun(r batch.Report, what string) error {
	var b strings.Builder
	for _, w := range r.Warnings {
		fmt.Fprintf(&b, "warning: %s\n", progress.SanitizeLine(w, 1000))
	}
	counted := func(title string, counts map[string]uint64) {
		if len(counts) == 0 {
			return
		}
		var parts []string
		for _, name := range slices.Sorted(maps.Keys(counts)) {
			part := progress.SanitizeLine(name, 100)
			if n := counts[name]; n != r.Items-r.Bad {
				part += fmt.Sprintf(" (%d of %d)", n, r.Items-r.Bad)
			}
			parts = append(parts, part)
		}
		fmt.Fprintf(&b, "%-12s%s\n", title, strings.Join(parts, ", "))
	}
	counted("goes to", r.Endpoints)
	counted("sends", r.Sent)
	counted("gets back", r.Returned)
	for _, q := range r.Requests {
		fmt.Fprintf(&b, "%s:%d: POST %s\n  %s\n", progress.SanitizeLine(q.File, 1000), q.Line,
			progress.SanitizeLine(q.Path, 200), progress.SanitizeLine(string(q.Body), len(q.Body)))
	}
	if _, err := fmt.Fprint(e.Err, b.String()); err != nil {
		return err
	}
	line := fmt.Sprintf("dry-run OK: model=%s inputs=%d%s\n", r.Model, r.Items, what)
	if r.Bad > 0 {
		line = fmt.Sprintf("dry-run: model=%s inputs=%d bad=%d%s\n", r.Model, r.Items, r.Bad, what)
	}
	_, err := fmt.Fprint(e.Out, line)
	return err
}
