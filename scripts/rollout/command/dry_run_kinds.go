package command

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"rollout/functions/submit"
	"rollout/scripts/rollout/batch"
	"rollout/scripts/rollout/progress"
	"rollout/scripts/rollout/promptsfile"
	"rollout/scripts/rollout/train"
	"rollout/shared/config"
	"rollout/shared/fault"
	"rollout/shared/figures"
	"rollout/shared/input"
	"rollout/shared/installation"
	"rollout/shared/kind"
	"rollout/shared/prices"
	"rollout/shared/record"
)

// checkGraders checks the graders and the budget of a run as submitting it does, and that pools serve the models of its
// judges.
// Without pools in the config, `up` makes them of what its engine serves.
func checkGraders(d config.Deployment, run config.Run) error {
	if err := submit.CheckGraders(d, run.Grades); err != nil {
		return err
	}
	if len(d.InferPools()) == 0 {
		return prices.CheckBudget(d, run.Limits, []string{config.DefaultPool})
	}
	k, err := kind.Table{}.Of(run.Kind)
	if err != nil {
		return err
	}
	pool, _, err := kind.Serving(d, run.Model)
	if err != nil {
		return err
	}
	m := record.Manifest{Pool: pool.Name}
	if m.Roles, err = k.ResolveRoles(run, pool.Model, d); err != nil {
		return err
	}
	return prices.CheckBudget(d, run.Limits, m.Pools())
}

// inFolder calls check with a temporary folder.
func inFolder(check func(folder string) error) (err error) {
	folder, err := os.MkdirTemp("", "rollout-dry-run-*")
	if err != nil {
		return promptsfile.Unwritable(err, "a folder for the check")
	}
	defer func() { err = errors.Join(err, os.RemoveAll(folder)) }()
	return check(folder)
}

// rollout checks every ticket and grader, and shows what would be asked first.
func (d dryRun) rollout(ctx context.Context, in *installation.Installation) error {
	deployment, err := withPools(in.Deployment, d.run)
	if err != nil {
		return err
	}
	var report batch.RolloutReport
	if err := inFolder(func(folder string) (err error) {
		report, err = batch.CheckRollout(ctx, d.run, deployment, d.files[0], folder)
		return err
	}); err != nil {
		return err
	}
	lines := uint64(report.Tickets + report.Refused)
	if d.asJSON {
		err = d.print(struct {
			batch.RolloutReport
			serverCheck
		}{report, d.servers})
	} else {
		line := fmt.Sprintf("dry-run OK: kind=rollout model=%s tickets=%d", report.Model, report.Tickets)
		if report.Refused > 0 || report.Bad > 0 {
			line = fmt.Sprintf("dry-run: kind=rollout model=%s tickets=%d bad=%d bad_requests=%d", report.Model,
				report.Tickets, report.Refused, report.Bad)
		}
		err = d.write(d.servers.text()+rolloutText(report, d.files[0]), line)
	}
	return errors.Join(err, d.badLines(uint64(report.Refused), lines), badRequests(report.Report, "tickets"),
		d.servers.failure())
}

// badRequests returns the error of lines, which are called that, whose requests the run could not ask.
func badRequests(r batch.Report, lines string) error {
	if r.Bad == 0 {
		return nil
	}
	return &fault.Error{Kind: fault.Conflict, Err: fmt.Errorf("%s of the first %s invalid", figures.Count(r.Bad),
		figures.OfMany(r.Items, "request is", "requests are")), Remedy: "correct their " + lines +
		" or the config; a run answers all others and writes an error line for each of these"}
}

// trials checks every task, grader and request.
func (d dryRun) trials(ctx context.Context, in *installation.Installation) error {
	deployment, err := withPools(in.Deployment, d.run)
	if err != nil {
		return err
	}
	var report batch.TrialsReport
	if err := inFolder(func(folder string) (err error) {
		report, err = batch.CheckTrials(ctx, d.run, deployment, d.files[0], folder)
		return err
	}); err != nil {
		return err
	}
	if d.asJSON {
		err = d.print(struct {
			batch.TrialsReport
			serverCheck
		}{report, d.servers})
	} else {
		line := fmt.Sprintf("dry-run OK: kind=trials model=%s tasks=%d trials=%d", report.Model, report.Tasks, report.Items)
		if report.Bad > 0 {
			line = fmt.Sprintf("dry-run: kind=trials model=%s tasks=%d trials=%d bad_requests=%d", report.Model, report.Tasks,
				report.Items, report.Bad)
		}
		err = d.write(d.servers.text()+trialsText(report), line)
	}
	return errors.Join(err, badRequests(report.Report, "tasks"), d.servers.failure())
}

// trialsText formats the check of a run of trials, for people.
func trialsText(r batch.TrialsReport) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%-12s%s under %s in %s\n", "tries", figures.Of(r.Tasks, "task"),
		figures.Of(len(r.Variants), "variant"), figures.Of(r.Replications, "replication"))
	fmt.Fprintf(&b, "%-12s%s\n", "variants", strings.Join(r.Variants, ", "))
	if len(r.Graders) > 0 {
		fmt.Fprintf(&b, "%-12s%s\n", "graders", strings.Join(r.Graders, ", "))
	}
	if len(r.Looks) > 0 {
		fmt.Fprintf(&b, "%-12s%s, after %s trials\n", "looks", figures.Count(len(r.Looks)), joined(r.Looks))
	}
	return b.String() + reportText(r.Report)
}

// joined formats numbers as a list: "60, 120 and 180".
func joined(numbers []int) string {
	var texts []string
	for _, n := range numbers {
		texts = append(texts, figures.Count(n))
	}
	last := len(texts) - 1
	if last == 0 {
		return texts[0]
	}
	return strings.Join(texts[:last], ", ") + " and " + texts[last]
}

// withPools returns the deployment with a pool for each model of the run, if it declares none: `up` makes pools of what
// its engine serves, which is not known before.
func withPools(d config.Deployment, run config.Run) (config.Deployment, error) {
	if len(d.InferPools()) > 0 {
		return d, nil
	}
	k, err := kind.Table{}.Of(run.Kind)
	if err != nil {
		return d, err
	}
	models := []string{cmp.Or(run.Model.URI, config.ModelTiny)}
	if k.Roles != nil {
		for _, r := range k.Roles(run) {
			if m := r.Model.URI; m != "" && !slices.Contains(models, m) {
				models = append(models, m)
			}
		}
	}
	d.Pools = slices.Clone(d.Pools)
	for i, model := range models {
		name := config.DefaultPool
		if i > 0 {
			name = fmt.Sprintf("model-%d", i+1)
		}
		d.Pools = append(d.Pools, config.Pool{Name: name, Model: model})
	}
	return d, nil
}

// rolloutText formats the check of a rollout, for people.
func rolloutText(r batch.RolloutReport, file string) string {
	var b strings.Builder
	for _, at := range r.RefusedAt {
		fmt.Fprintf(&b, "warning: %s:%d: %s\n", progress.SanitizeLine(file, 500), at.Line,
			progress.SanitizeLine(at.Message, 500))
	}
	fmt.Fprintf(&b, "%-12s%s of %s in %s\n", "asks", figures.Of(r.AllAnswers, "answer"), figures.Of(r.Tickets, "ticket"),
		figures.Of(r.Epochs, "epoch"))
	if len(r.Graders) > 0 {
		fmt.Fprintf(&b, "%-12s%s\n", "graders", progress.SanitizeLine(strings.Join(r.Graders, ", "), 500))
	}
	fmt.Fprintf(&b, "%-12s%s, stage %s\n", "first", figures.Of(r.Items, "request"), r.Stage)
	return b.String() + reportText(r.Report)
}

// training checks every row of the dataset, as the training reads it.
func (d dryRun) training(ctx context.Context) error {
	a := *d.run.Algorithm
	rows := uint64(0)
	if err := inFolder(func(folder string) (err error) {
		path := d.files[0]
		if packed, _ := input.Packing(path); packed != "" {
			path = filepath.Join(folder, "rows.jsonl")
			if err := promptsfile.Copy(ctx, path, d.files[0], d.run.Input.MaxUnpacked); err != nil {
				return err
			}
		}
		o := train.Options{Config: config.Train{Algorithm: withDataset(a, path)}}
		rows, err = o.Check(ctx)
		return fault.Wrap(err, "%s", d.files[0])
	}); err != nil {
		return err
	}
	common := a.Common()
	if d.asJSON {
		return d.print(struct {
			Kind      string `json:"kind"`
			Algorithm string `json:"algorithm"`
			Model     string `json:"model"`
			Rows      uint64 `json:"rows"`
			Steps     int    `json:"steps"`
			Minibatch int    `json:"minibatch_size"`
		}{d.run.Kind, a.Kind, common.BaseModel.URI, rows, common.Budget.MaxSteps, common.Minibatch})
	}
	return d.write(fmt.Sprintf("%-12s%s, %s a step\n", "trains", figures.Of(common.Budget.MaxSteps, "step"),
		figures.Of(common.Minibatch, "row")),
		fmt.Sprintf("dry-run OK: kind=train algorithm=%s model=%s rows=%d", a.Kind, common.BaseModel.URI, rows))
}

// withDataset returns the algorithm with the rows in the file at the path.
func withDataset(a config.Algorithm, path string) config.Algorithm {
	if a.SFT != nil {
		sft := *a.SFT
		sft.Dataset.Path = path
		a.SFT = &sft
	}
	if a.RM != nil {
		rm := *a.RM
		rm.Dataset.Path = path
		a.RM = &rm
	}
	return a
}
