package command

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"

	"github.com/spf13/cobra"

	"rollout/gpuworker/process"
	"rollout/scripts/rollout/batch"
	"rollout/scripts/rollout/progress"
	"rollout/shared/artifact"
	"rollout/shared/config"
	"rollout/shared/embedded/machine"
	"rollout/shared/fault"
	"rollout/shared/figures"
	"rollout/shared/installation"
	"rollout/shared/record"
)

const preflightUsage = "of trials: check everything, freeze the artifacts of agents, and try one trial of each " +
	"variant here; start no run, and exit with 1 if a variant fails"

// preflight is the result of a preflight, and what --preflight --json prints.
type preflight struct {
	Tasks     int               `json:"tasks"`
	Trials    uint64            `json:"trials"`
	Artifacts []record.Artifact `json:"artifacts"`
	Smoked    []process.Smoked  `json:"smoked"`
}

// tryTrials checks a run of trials in three phases, each before anything of the next: the config and every task; the
// artifacts of its agents; and one trial of each variant.
func (e *Env) tryTrials(c *cobra.Command, s submission, engineURL string, asJSON bool) (err error) {
	ctx := c.Context()
	in, err := e.openWith(c, s.location, installation.Options{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, in.Close()) }()
	if in.Cloud != "" {
		return usage(c, "--preflight tries trials on this machine: an installation in a cloud is not on it")
	}
	up, err := checkUpload(ctx, in, s.file, s.configPath, s.settings)
	if err != nil {
		return err
	}
	run, err := up.runConfig(in)
	if err != nil {
		return err
	}
	if run.Kind != config.KindTrials {
		return usage(c, "--preflight is for trials, and this run is a %s: use --dry-run or --sample", run.Kind)
	}
	d := in.Deployment
	if engineURL != "" {
		d.Engine = d.Engine.WithURLs([]string{engineURL})
	}
	if d, err = withPools(d, run); err != nil {
		return err
	}
	p, err := e.preflight(ctx, in, d, run, s.file)
	if err != nil {
		return err
	}
	failed := 0
	for _, v := range p.Smoked {
		if v.Problem != "" {
			failed++
		}
	}
	say := dryRun{Env: e}
	if asJSON {
		err = say.print(p)
	} else {
		err = say.write(p.text(), fmt.Sprintf("preflight: variants=%d failed=%d", len(p.Smoked), failed))
	}
	if err != nil {
		return err
	}
	if failed > 0 {
		return &fault.Error{Kind: fault.Conflict, Err: fmt.Errorf("%s not pass", figures.OfMany(failed, "variant does",
			"variants do")), Remedy: "mend them before you submit the tasks"}
	}
	return nil
}

// preflight does so without a word.
func (e *Env) preflight(ctx context.Context, in *installation.Installation, d config.Deployment, run config.Run,
	file string) (p preflight, err error) {
	var m record.Manifest
	var lines [][]byte
	if err := inFolder(func(folder string) (err error) { // 1: config, graders, every task
		report, err := batch.CheckTrials(ctx, run, d, file, folder)
		if err == nil {
			err = badRequests(report.Report, "tasks")
		}
		p.Tasks, p.Trials = report.Tasks, report.Items
		return err
	}); err != nil {
		return p, err
	}
	if err := inFolder(func(folder string) (err error) {
		m, lines, err = batch.FirstTrials(ctx, run, d, file, folder)
		return err
	}); err != nil {
		return p, err
	}
	p.Artifacts = []record.Artifact{}
	for _, v := range m.Config.Variants { // 2: what agents start with
		if v.Artifact == "" {
			continue
		}
		frozen, err := artifact.Pin(ctx, in.Ports.Blobs, v.Artifact, nil)
		if err != nil {
			return p, fault.Wrap(err, "artifact of the variant %s", v.Name)
		}
		p.Artifacts = append(p.Artifacts, record.Artifact{Variant: v.Name, Key: v.Artifact, Content: frozen.Content.String(),
			Bytes: frozen.Bytes, Files: frozen.Files})
	}
	m.Artifacts = p.Artifacts
	log, err := e.logger(slog.LevelError)
	if err != nil {
		return p, err
	}
	ports := in.Ports
	ports.Log = log
	secrets := machine.EnvSecrets(d.Secrets, func(name string) (string, bool) {
		value := e.Getenv(name)
		return value, value != ""
	})
	o := process.Options{Ports: ports, Deployment: d, Pool: m.Pool, Secrets: secrets, Private: []string{in.Dir}}
	p.Smoked, err = process.Smoke(ctx, o, m, lines) // 3: a trial of each variant
	return p, err
}

// text formats a preflight, for people.
func (p preflight) text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%-12s%s, %s\n", "checked", figures.Of(p.Tasks, "task"), figures.Of(int(p.Trials), "trial"))
	for _, a := range p.Artifacts {
		fmt.Fprintf(&b, "%-12s%s: %s of %s (%s)\n", "artifact", a.Variant, figures.Of(a.Files, "file"),
			progress.SanitizeLine(a.Key, 200), a.Content[:12])
	}
	for _, s := range p.Smoked {
		word, said := "ok", s.Answer
		if s.Problem != "" {
			word, said = "failed", s.Problem
		}
		if s.Isolation != "" {
			word += ", isolation " + s.Isolation
		}
		fmt.Fprintf(&b, "%-12s%s: %s: %s\n", "tried", s.Variant, word, progress.SanitizeLine(said, 500))
	}
	return b.String()
}
