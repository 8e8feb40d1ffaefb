package command

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"rollout/scripts/rollout/cuts"
	"rollout/scripts/rollout/progress"
	"rollout/scripts/rollout/terminal"
	"rollout/shared/config"
	"rollout/shared/core/identity"
	"rollout/shared/fault"
	"rollout/shared/figures"
	"rollout/shared/host"
	"rollout/shared/input"
	"rollout/shared/installation"
)

// runPlan is what `rollout plan --json` prints.
type runPlan struct {
	Run      identity.RunID `json:"run_id,omitempty"` // of a run
	Name     string         `json:"name,omitempty"`   // likewise
	Kind     string         `json:"kind"`
	Model    string         `json:"model"`  // "" if the pool decides
	Config   string         `json:"config"` // the file or object that counts
	Settings []setting      `json:"settings"`
	cuts.Cuts
}

// setting is a key of a run's config.
type setting struct {
	Key   string `json:"key"`
	Value string `json:"value"`
	From  string `json:"from"` // "default", "--set", or the file
}

func planCommand(e *Env) *cobra.Command {
	c := &cobra.Command{
		Use:   "plan FILE|RUN",
		Short: "Show how a file would be cut into shards, or a run is, and where each setting comes from",
		Long: "Shows ranges, shards, items and sizes of a prompts file as a run of it would have them, without starting\n" +
			"one, or those of a run; and the settings that count: of the file's config, of --set, or the defaults.\n\n" +
			runHelp,
		Args: arguments(0, "FILE|RUN"),
	}
	location := locationFlags(c)
	configPath := c.Flags().String("config", "", "of FILE: the run's config `file`")
	settings := setFlag(c, "of FILE, over the config: a `setting` such as shard.items=100")
	asJSON := c.Flags().Bool("json", false, "print the plan as one JSON object")
	c.RunE = func(c *cobra.Command, args []string) error {
		p, err := e.plan(c, *location, args[0], *configPath, *settings)
		if err != nil {
			return err
		}
		if *asJSON {
			enc := json.NewEncoder(e.Out)
			enc.SetEscapeHTML(false)
			return enc.Encode(p)
		}
		_, err = io.WriteString(e.Out, planText(p, e.palette(e.Out)))
		return err
	}
	return c
}

// plan returns the plan of a prompts file or of a run.
func (e *Env) plan(
	c *cobra.Command, location installation.Location, what, configPath string, settings []string,
) (p runPlan, err error) {
	info, statErr := os.Stat(what)
	if _, named := input.Packing(what); named || statErr == nil && info.Mode().IsRegular() {
		in, err := e.openWith(c, location, installation.Options{AllowUninitialized: true})
		if err != nil {
			return p, err
		}
		p, err = planOfFile(c.Context(), in, what, configPath, settings)
		return p, errors.Join(err, in.Close())
	}
	if configPath != "" || len(settings) > 0 {
		return p, usage(c, "--config and --set are of a file, and there is no file %q", what)
	}
	r, err := e.openRun(c, location, what)
	if err != nil {
		return p, err
	}
	p, err = planOfRun(c.Context(), r)
	return p, errors.Join(err, r.Close())
}

func planOfFile(
	ctx context.Context, in *installation.Installation, file, configPath string, settings []string,
) (p runPlan, err error) {
	up, err := checkUpload(ctx, in, file, configPath, nil)
	if err != nil {
		return p, err
	}
	run, err := up.runConfig(in)
	if err == nil {
		run, err = run.Set(settings)
	}
	if err != nil {
		return p, err
	}
	if run.Kind != config.KindBatch {
		return p, &fault.Error{Kind: fault.Invalid,
			Err:    fmt.Errorf("the plan of a %s is not a cut of its file: it is made while the run goes on", run.Kind),
			Remedy: "see what it asks first with `rollout submit --dry-run`, or the plan of its run with `rollout plan RUN`"}
	}
	p = runPlan{Kind: run.Kind, Config: up.source}
	given, changed := config.FileKeys(up.counts), config.SettingKeys(settings)
	if up.counts == nil {
		p.Config = "[defaults] of the installation"
	}
	if p.Settings, err = settingsOf(run, func(v config.Value) string {
		switch {
		case setsKey(changed, v.Key):
			return "--set"
		case setsKey(given, v.Key), up.counts == nil && !v.Default:
			return p.Config
		}
		return "default"
	}); err != nil {
		return p, err
	}
	if _, err := engineOf(in.Deployment, &run); err != nil {
		return p, err
	}
	p.Model = run.Model.URI
	p.Cuts, err = cuts.OfFile(ctx, file, run)
	return p, err
}

func planOfRun(ctx context.Context, r *selectedRun) (p runPlan, err error) {
	m, err := host.LoadManifest(ctx, r.Ports.Docs, r.run.Run)
	if err != nil {
		return p, err
	}
	p = runPlan{Run: m.Run, Name: m.Name, Kind: m.Kind, Model: m.ModelURI, Config: m.ConfigKey}
	if p.Config == "" {
		p.Config = "[defaults] of the installation"
	}
	if p.Settings, err = settingsOf(m.Config, func(v config.Value) string {
		if v.Default {
			return "default"
		}
		return p.Config
	}); err != nil {
		return p, err
	}
	p.Cuts, err = cuts.OfRun(ctx, r.Ports, m)
	if fault.Is(err, fault.NotFound) {
		err = &fault.Error{Kind: fault.Unavailable, Err: fmt.Errorf("run %s has no plan", m.Run),
			Remedy: "wait until it is planned; a refused run is never planned: see `rollout status " + string(m.Run) + "`"}
	}
	return p, err
}

// settingsOf lists the settings of a config with where they come from.
func settingsOf(c config.Run, from func(config.Value) string) ([]setting, error) {
	values, err := c.Values()
	out := make([]setting, 0, len(values))
	for _, v := range values {
		out = append(out, setting{v.Key, v.Text, from(v)})
	}
	return out, err
}

// setsKey reports whether one of the keys sets the key: it is the key, a table around it in a short spelling, or a part
// of it.
func setsKey(keys []string, key string) bool {
	return slices.ContainsFunc(keys, func(k string) bool {
		return k == key || strings.HasPrefix(key, k+".") || strings.HasPrefix(k, key+".")
	})
}

// maxRanges and maxInputs are how many ranges and inputs are shown to people.
const (
	maxRanges = 20
	maxInputs = 20
)

// planText formats a plan for people.
func planText(p runPlan, colours terminal.Palette) string {
	var b strings.Builder
	fact := func(label, format string, args ...any) {
		fmt.Fprintf(&b, "%s%s\n", colours.In(terminal.Bold, fmt.Sprintf("%-12s", label)), fmt.Sprintf(format, args...))
	}
	line := func(s string) string { return progress.SanitizeLine(s, 500) }
	if p.Run != "" {
		fact("run", "%s (%s)", p.Run, line(p.Name))
	}
	model := line(p.Model)
	if model == "" {
		model = "that of the pool"
	}
	fact("kind", "%s, model %s", p.Kind, model)
	fact("config", "%s", line(p.Config))
	for _, in := range p.Inputs[:min(len(p.Inputs), maxInputs)] {
		size := figures.Of(in.Size, "byte")
		if in.Unpacked != in.Size {
			size += ", " + figures.Count(in.Unpacked) + " unpacked"
		}
		fact("input", "%s, %s", line(in.Name), size)
	}
	if more := len(p.Inputs) - maxInputs; more > 0 {
		fact("", "and %s: see --json", figures.Of(more, "more input"))
	}
	per := ""
	if p.MostItems > 0 {
		per = fmt.Sprintf(", %s to %s items each", figures.Count(p.LeastItems), figures.Count(p.MostItems))
	}
	fact("cut", "%s in %s of %s%s", figures.Of(p.Items, "item"), figures.Of(p.Shards, "shard"),
		figures.Of(len(p.Ranges), "range"), per)
	if !p.Complete {
		fact("", "the plan is not complete yet: more may come")
	}
	plain := func(_, _ int, cell string) string { return cell }
	rows := [][]string{{"setting", "value", "from"}}
	for _, s := range p.Settings {
		rows = append(rows, []string{line(s.Key), progress.SanitizeLine(s.Value, 60), line(s.From)})
	}
	b.WriteString("\n" + terminal.Table(rows, colours, plain))
	rows = [][]string{{"range", "input", "bytes", "shards", "items"}}
	for i, r := range p.Ranges[:min(len(p.Ranges), maxRanges)] {
		rows = append(rows, []string{figures.Count(i), figures.Count(r.Input),
			figures.Count(r.Offset) + " to " + figures.Count(r.End), figures.Count(r.Shards), figures.Count(r.Items)})
	}
	if len(rows) > 1 {
		b.WriteString("\n" + terminal.Table(rows, colours, plain))
	}
	if more := len(p.Ranges) - maxRanges; more > 0 {
		fmt.Fprintf(&b, "and %s: see --json\n", figures.Of(more, "more range"))
	}
	return b.String()
}
