package command

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"rollout/scripts/rollout/batch"
	"rollout/scripts/rollout/progress"
	"rollout/shared/config"
	"rollout/shared/fault"
	"rollout/shared/figures"
	"rollout/shared/record"
)

const dryRunUsage = "only check the config, every line and the servers' models, and show three requests; exit with 1 " +
	"if lines are bad or a server lacks the model"

// dryRun is a check of what a run would read and ask.
type dryRun struct {
	*Env
	run     config.Run
	engine  config.Engine
	servers serverCheck
	files   []string
	what    string // ends the line that says the result
	asJSON  bool
}

// prompts checks every line of the files, as a batch reads them.
func (d dryRun) prompts(ctx context.Context) error {
	report, err := batch.Check(ctx, d.run, d.engine, d.files)
	if err != nil {
		return err
	}
	report.Warnings = append(report.Warnings, batch.GatedWarning(d.run.Model.URI, d.Getenv)...)
	if d.asJSON {
		err = d.print(struct {
			batch.Report
			serverCheck
			Budgets []record.Budget `json:"budgets,omitempty"`
		}{report, d.servers, record.Budgets(d.run.Limits, 0, 0)})
	} else {
		line := fmt.Sprintf("dry-run OK: model=%s inputs=%d%s", report.Model, report.Items, d.what)
		if report.Bad > 0 {
			line = fmt.Sprintf("dry-run: model=%s inputs=%d bad=%d%s", report.Model, report.Items, report.Bad, d.what)
		}
		err = d.write(d.servers.text()+budgetText(d.run)+reportText(report), line)
	}
	return errors.Join(err, d.badLines(report.Bad, report.Items), d.servers.failure())
}

// badLines returns the error of bad lines, of which a run answers none.
func (d dryRun) badLines(bad, all uint64) error {
	if bad == 0 {
		return nil
	}
	return &fault.Error{Kind: fault.Conflict, Err: fmt.Errorf("%s of %s invalid", figures.Count(bad),
		figures.OfMany(all, "line is", "lines are")),
		Remedy: "correct them; a run answers all other lines and writes an error line for each of these"}
}

// print writes a report for programs.
func (d dryRun) print(report any) error {
	b, err := json.Marshal(report)
	if err == nil {
		_, err = fmt.Fprintf(d.Out, "%s\n", b)
	}
	return err
}

// write writes the details for people to Err, and one line for programs to Out.
func (d dryRun) write(details, line string) error {
	_, err := io.WriteString(d.Err, details)
	if err == nil {
		_, err = fmt.Fprintln(d.Out, line)
	}
	return err
}

// budgetText says what the run may spend; "" without a budget.
func budgetText(run config.Run) string {
	if text := formatBudgets(record.Budgets(run.Limits, 0, 0)); text != "" {
		return fmt.Sprintf("%-12s%s\n", "budget", text)
	}
	return ""
}

// reportText formats what Check found, for people.
func reportText(r batch.Report) string {
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
		at := progress.SanitizeLine(q.File, 1000)
		if q.Line > 0 {
			at += fmt.Sprintf(":%d", q.Line)
		}
		fmt.Fprintf(&b, "%s: POST %s\n  %s\n", at, progress.SanitizeLine(q.Path, 200),
			progress.SanitizeLine(string(q.Body), len(q.Body)))
	}
	return b.String()
}
