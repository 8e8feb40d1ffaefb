package command

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"rollout/functions/api"
	"rollout/functions/submit"
	"rollout/scripts/rollout/progress"
	"rollout/scripts/rollout/promptsfile"
	"rollout/scripts/rollout/sample"
	"rollout/scripts/rollout/terminal"
	"rollout/shared/config"
	"rollout/shared/core/estimate"
	"rollout/shared/fault"
	"rollout/shared/figures"
	"rollout/shared/input"
	"rollout/shared/installation"
	"rollout/shared/jsonl"
	"rollout/shared/text"
)

// part are the flags that select a part of a prompts file.
type part struct {
	sample, limit int
	seed          uint64
}

func partFlags(c *cobra.Command) *part {
	var p part
	c.Flags().IntVar(&p.sample, "sample", 0, "first ask a random sample of `N` lines, and tell what the whole file takes")
	c.Flags().IntVar(&p.limit, "limit", 0, "first ask the first `N` lines, and tell what the whole file takes")
	c.Flags().Uint64Var(&p.seed, "seed", 0, "of --sample: the same `number` draws the same lines")
	return &p
}

func (p part) asked() bool { return p.sample != 0 || p.limit != 0 }

func (p part) size() int { return max(p.sample, p.limit) }

// suffix ends the names of the file and of the run.
func (p part) suffix() string {
	if p.limit > 0 {
		return "-head"
	}
	return "-sample"
}

func (p part) check(c *cobra.Command) error {
	set := c.Flags().Changed
	switch {
	case set("sample") && set("limit"):
		return usage(c, "--sample takes random lines and --limit the first ones: use one of them")
	case set("seed") && !set("sample"):
		return usage(c, "--seed is that of --sample: use both")
	case (set("sample") || set("limit")) && (p.size() < 2 || p.size() > estimate.MaxSample || min(p.sample, p.limit) < 0):
		return usage(c, "a part of a file has 2 to %s lines", figures.Count(estimate.MaxSample))
	}
	return nil
}

// submission is what the command line says of a submission.
type submission struct {
	location   installation.Location
	file       string
	configPath string
	settings   []string
}

// command returns the command line that submits the whole file. The values of settings that may be keys are left out.
func (s submission) command() string {
	words := []string{"rollout", "submit", text.ShellPath(s.file)}
	if s.configPath != "" {
		words = append(words, "--config", text.ShellPath(s.configPath))
	}
	for _, setting := range config.MaskSettings(s.settings) {
		words = append(words, "--set", text.ShellWord(setting))
	}
	return strings.Join(append(words, s.location.Flags()), " ")
}

// submitPart runs a part of the prompts file and tells what the whole takes.
func (e *Env) submitPart(c *cobra.Command, s submission, p part, asJSON bool) (err error) {
	ctx := c.Context()
	in, err := e.openWith(c, s.location, installation.Options{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, in.Close()) }()
	s.location = in.Location
	if err := in.CheckOwner(ctx); err != nil {
		return err
	}
	whole, err := checkUpload(ctx, in, s.file, s.configPath, s.settings)
	if err != nil {
		return err
	}
	folder, err := os.MkdirTemp("", "rollout-sample-*")
	if err != nil {
		return promptsfile.Unwritable(err, "a folder for the sample")
	}
	defer func() { err = errors.Join(err, os.RemoveAll(folder)) }()
	drawn, up, err := drawPart(ctx, in, whole, p, folder)
	if err != nil {
		return err
	}
	service := api.New(in.Ports, in.Deployment, in.Profile)
	started := *e
	if asJSON { // standard output has the estimate alone
		started.Out = e.Err
	}
	id, key, err := started.upload(ctx, in, up)
	if err != nil {
		return err
	}
	end, err := e.followToEnd(ctx, in, service, id, key)
	if err != nil {
		return err
	}
	outcome := progress.Outcome(end, in.Path)
	run, err := endedRun(ctx, in.Ports, id)
	if fault.Is(err, fault.NotFound) || err == nil && run.Manifest.Refused != "" {
		return outcome // a refused run says why
	}
	if err != nil {
		return err
	}
	got, err := sample.Measure(ctx, in.Ports, drawn, run, in.Deployment.ForPool(run.Manifest.Pool).Engine)
	if err != nil {
		return errors.Join(err, outcome)
	}
	got.Submit, got.LeftOut = s.command(), !slices.Equal(config.MaskSettings(s.settings), s.settings)
	if asJSON {
		enc := json.NewEncoder(e.Out)
		enc.SetEscapeHTML(false)
		err = enc.Encode(got)
	} else {
		_, err = io.WriteString(e.Out, estimateText(got, e.palette(e.Out)))
	}
	return errors.Join(err, outcome)
}

// drawPart draws the part of the file into the folder. It returns the part's upload: a run of its own with the config
// of the whole and a name derived from its.
func drawPart(
	ctx context.Context, in *installation.Installation, whole upload, p part, folder string,
) (drawn sample.Sample, up upload, err error) {
	run, err := whole.runConfig(in)
	if err != nil {
		return drawn, up, err
	}
	if run.Kind != config.KindBatch {
		return drawn, up, &fault.Error{Kind: fault.Invalid,
			Err:    fmt.Errorf("a part of a file can be asked of prompts, and this run is a %s", run.Kind),
			Remedy: "submit a smaller file, with its own config"}
	}
	engine, err := engineOf(in.Deployment, &run)
	if err != nil {
		return drawn, up, err
	}
	stem, _, _ := input.SplitName(whole.key)
	name := text.Truncate(cmp.Or(run.Name, submit.DefaultName(whole.key)), 100, "") + p.suffix()
	up = upload{key: stem + p.suffix() + input.Suffix(""), configKey: stem + p.suffix() + ".toml", part: true}
	up.file = filepath.Join(folder, filepath.Base(up.key))
	drawn, err = sample.Draw(ctx, sample.Options{File: whole.file, To: up.file, Size: p.size(), Head: p.limit > 0,
		Seed: p.seed, Config: run, Engine: engine})
	if err == nil && drawn.Whole.Items == 0 {
		err = &fault.Error{Kind: fault.Invalid, Err: fmt.Errorf("%s has no line that a run can ask", whole.file),
			Remedy: "see what is wrong with `rollout submit --dry-run`"}
	}
	if err != nil {
		return drawn, up, err
	}
	// The config counts by its content: the file beside the part is a copy, with the part's name, and the dialect of the
	// whole, which the lines of a part may not tell.
	up.config, err = config.SetRun(whole.source, whole.counts, in.Deployment.Defaults, []string{
		"name=" + tomlString(name), "input.dialect=" + tomlString(string(drawn.Report.Dialect))})
	return drawn, up, err
}

// tomlString returns the text as a string of TOML, which has those of JSON.
func tomlString(s string) string { return string(jsonl.AppendString(nil, s)) }

// maxSeconds bounds the times that are shown, 31 years: a time.Duration holds 292.
const maxSeconds = 1e9

// estimateText formats an estimate for people.
func estimateText(e sample.Estimate, colours terminal.Palette) string {
	of := fmt.Sprintf("the first %s", figures.Count(e.Sampled))
	if e.Random {
		of = fmt.Sprintf("%s random ones (seed %d)", figures.Count(e.Sampled), e.Seed)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n", colours.In(terminal.Bold, fmt.Sprintf("the whole file: %s, estimated from %s",
		figures.Of(e.Items, "item"), of)))
	rows := [][]string{{"", "estimate", "95 % interval"}}
	add := func(name string, i *estimate.Interval, format func(float64) string) {
		if i != nil {
			rows = append(rows, []string{name, format(i.Value), format(i.Low) + " to " + format(i.High)})
		}
	}
	add("prompt tokens", e.PromptTokens, figures.Whole)
	add("completion tokens", e.CompletionTokens, figures.Whole)
	add("tokens", e.Tokens, figures.Whole)
	add("cost", e.Dollars, figures.Dollars)
	add("time", e.Seconds, func(s float64) string {
		return figures.Duration(time.Duration(min(s, maxSeconds) * float64(time.Second)))
	})
	if len(rows) > 1 {
		b.WriteString(terminal.Table(rows, colours, func(_, _ int, cell string) string { return cell }))
	}
	for _, note := range notesOf(e) {
		fmt.Fprintf(&b, "%s\n", note)
	}
	fmt.Fprintf(&b, "submit the whole: %s\n", progress.SanitizeLine(e.Submit, 1000))
	return b.String()
}

// notesOf says what an estimate does not.
func notesOf(e sample.Estimate) (notes []string) {
	add := func(when bool, format string, args ...any) {
		if when {
			notes = append(notes, fmt.Sprintf(format, args...))
		}
	}
	add(e.Bad > 0, "%s of the file will get error rows: `--dry-run` shows them", figures.Of(e.Bad, "bad line"))
	add(e.Repeats > 0, "%s will get a copy of another one's answer", figures.Of(e.Repeats, "line"))
	add(e.Failed > 0, "%s of the sample failed, and count as 0 tokens", figures.Of(e.Failed, "item"))
	add(e.Unanswered > 0, "%s of the sample got no answer before its run ended, and are left out",
		figures.Of(e.Unanswered, "item"))
	add(e.UsageUnknown > 0, "the server did not report the tokens of %s: they are left out",
		figures.Of(e.UsageUnknown, "answer"))
	add(e.OtherTokens > 0, "judges took %s more tokens for the sample: they are not in the estimate",
		figures.Count(e.OtherTokens))
	add(!e.Random, "the intervals hold only if the first lines are like the rest: --sample takes random ones")
	add(e.Dollars == nil && e.Tokens != nil,
		"for dollars, set prompt_price and completion_price in [engine] of the installation's rollout.toml")
	add(e.Seconds != nil, "the time is at the pace of the sample: servers that are busy for longer may be faster")
	add(e.SecondsNote != "", "%s", e.SecondsNote)
	add(e.LeftOut, "the command has no values of [request], which may be keys: write them again, or into a config file")
	return notes
}
