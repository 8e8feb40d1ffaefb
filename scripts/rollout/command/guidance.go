package command

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"rollout/scripts/rollout/progress"
	"rollout/scripts/rollout/terminal"
	"rollout/shared/core/guidance"
	"rollout/shared/fault"
	"rollout/shared/figures"
	"rollout/shared/host"
	"rollout/shared/installation"
	"rollout/shared/record"
	"rollout/shared/rollout"
)

func guidanceCommand(e *Env) *cobra.Command {
	c := &cobra.Command{
		Use:   "guidance",
		Short: "Show, compare or promote the guidance of a rollout",
		Args:  unknownCommand,
		RunE:  func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(guidanceShowCommand(e), guidanceDiffCommand(e), guidancePromoteCommand(e))
	return c
}

// missionHelp explains --mission and which step is taken by default.
const missionHelp = "The default step is the promoted one; of a run that has not ended, the newest. --mission names\n" +
	"the mission in a run of several.\n\n"

// guidanceFlags are the flags of all commands that read guidance.
type guidanceFlags struct {
	mission string
	json    bool
}

func (f *guidanceFlags) add(c *cobra.Command) {
	c.Flags().StringVar(&f.mission, "mission", "", "the `name` of the mission")
	c.Flags().BoolVar(&f.json, "json", false, "print JSON: an object per mission")
}

// openRollout opens the installation, and finds the run that text names and the missions that the flag selects. The
// caller must close it. A run of another kind, and a mission that the run does not have, are Invalid.
func (e *Env) openRollout(c *cobra.Command, p openArguments) (r *rolloutRun, err error) {
	opened, err := e.openRun(c, p.location, p.run)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, opened.Close())
		}
	}()
	m, err := host.LoadManifest(c.Context(), opened.Ports.Docs, opened.run.Run)
	if err != nil {
		return nil, err
	}
	if len(m.Config.Missions) == 0 {
		return nil, &fault.Error{Kind: fault.Invalid, Err: fmt.Errorf("run %s is not a rollout", m.Run),
			Remedy: "`rollout status " + opened.Flags() + "` lists the runs: name one of the kind rollout"}
	}
	r = &rolloutRun{selectedRun: opened, manifest: m}
	var names []string
	for _, mission := range m.Config.Missions {
		names = append(names, mission.Name)
		if p.mission == "" || p.mission == mission.Name {
			r.missions = append(r.missions, mission.Name)
		}
	}
	if len(r.missions) == 0 {
		return nil, usage(c, "run %s has no mission %.64q: it has %s", m.Run, p.mission, strings.Join(names, ", "))
	}
	return r, nil
}

// openArguments say which run and which of its missions to open.
type openArguments struct {
	location installation.Location
	run      string
	mission  string // "": all
}

// rolloutRun is a run of the kind rollout and its open installation.
type rolloutRun struct {
	*selectedRun
	manifest record.Manifest
	missions []string
}

// one returns the only mission, or Invalid.
func (r *rolloutRun) one(c *cobra.Command) (string, error) {
	if len(r.missions) > 1 {
		return "", usage(c, "run %s has %s: name one with --mission: %s",
			r.manifest.Run, figures.Of(len(r.missions), "mission"), strings.Join(r.missions, ", "))
	}
	return r.missions[0], nil
}

// step returns a step of a mission's guidance.
func (r *rolloutRun) step(ctx context.Context, mission string, step int) (guidance.Guidance, error) {
	blobs, run := r.Ports.Blobs, r.manifest.Run
	g, err := rollout.ReadStep(ctx, blobs, run, mission, step)
	if !fault.Is(err, fault.NotFound) {
		return g, err
	}
	newest, err := r.newest(ctx, mission)
	if err != nil {
		return g, r.early(err)
	}
	return g, &fault.Error{Kind: fault.NotFound, Err: fmt.Errorf("mission %s has no step %d", mission, step),
		Remedy: fmt.Sprintf("name a step from 0 to %d", newest)}
}

// newest returns the newest step of a mission's guidance.
func (r *rolloutRun) newest(ctx context.Context, mission string) (int, error) {
	var plan record.Plan
	if _, _, err := host.Load(ctx, r.Ports.Docs, record.PlanKey(r.manifest.Run), &plan); err != nil {
		return 0, err
	}
	last := -1
	if plan.Appended != nil {
		last = plan.Appended.Input
	}
	return rollout.NewestStep(ctx, r.Ports.Blobs, r.manifest.Run, mission, last)
}

// present returns the promoted guidance of a mission or, while the run has not ended, the newest one.
func (r *rolloutRun) present(ctx context.Context, mission string) (g guidance.Guidance, promoted bool, err error) {
	blobs, run := r.Ports.Blobs, r.manifest.Run
	g, err = rollout.ReadPromoted(ctx, blobs, run, mission)
	if !fault.Is(err, fault.NotFound) {
		return g, true, err
	}
	newest, err := r.newest(ctx, mission)
	if err != nil {
		return g, false, r.early(err)
	}
	g, err = rollout.ReadStep(ctx, blobs, run, mission, newest)
	return g, false, err
}

// early adds the remedy to the NotFound error of a run whose first step is not written.
func (r *rolloutRun) early(err error) error {
	if !fault.Is(err, fault.NotFound) {
		return err
	}
	remedy := "try again once its first batch is planned"
	if r.run.Phase.Ended() {
		remedy = "it ended before its first batch: `rollout explain " + string(r.run.Run) + " " + r.Flags() + "` says why"
	}
	return &fault.Error{Kind: fault.NotFound, Err: err, Remedy: remedy}
}

func guidanceShowCommand(e *Env) *cobra.Command {
	c := &cobra.Command{
		Use:   "show RUN",
		Short: "Print a step of a rollout's guidance",
		Long: "Prints the text of a guidance, and how often its entries were named by right and by wrong answers.\n\n" +
			missionHelp + runHelp,
		Args: arguments(0, "RUN"),
	}
	location := locationFlags(c)
	var flags guidanceFlags
	flags.add(c)
	step := c.Flags().Int("step", -1, "the `number` of the step, from 0")
	c.RunE = func(c *cobra.Command, args []string) (err error) {
		r, err := e.openRollout(c, openArguments{*location, args[0], flags.mission})
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, r.Close()) }()
		for n, mission := range r.missions {
			g, promoted, err := r.present(c.Context(), mission)
			if err == nil && c.Flags().Changed("step") {
				promoted = promoted && g.Step == *step
				g, err = r.step(c.Context(), mission, *step)
			}
			if err != nil {
				return err
			}
			if flags.json {
				err = json.NewEncoder(e.Out).Encode(g)
			} else {
				err = e.printGuidance(g, promoted, n > 0)
			}
			if err != nil {
				return err
			}
		}
		return nil
	}
	return c
}

// guidanceColumns is the width of a text of a guidance on a terminal.
const guidanceColumns = 4000

// printGuidance writes a guidance as text, after a blank line if others stand before it.
func (e *Env) printGuidance(g guidance.Guidance, promoted, later bool) error {
	var b strings.Builder
	if later {
		b.WriteString("\n")
	}
	of := ""
	if promoted {
		of = ", promoted"
	}
	colours := e.palette(e.Out)
	title := fmt.Sprintf("mission %s, step %d%s", progress.SanitizeLine(g.Mission, nameColumns), g.Step, of)
	b.WriteString(colours.In(terminal.Bold, title) + "\n")
	for line := range strings.SplitSeq(g.Scaffold, "\n") {
		if g.Scaffold != "" {
			b.WriteString("  " + progress.SanitizeLine(line, guidanceColumns) + "\n")
		}
	}
	for n, entry := range g.Entries {
		fmt.Fprintf(&b, "%3d. %s\n", n+1, progress.SanitizeLine(entry.Text, guidanceColumns))
		fmt.Fprintf(&b, "     %s\n", colours.In(terminal.Cyan, entryHistory(entry, g.Step)))
	}
	_, err := e.Out.Write([]byte(b.String()))
	return err
}

// entryHistory says how an entry had fared when the step was made: "since step 1; named by 258 right and 10 wrong
// answers, last in step 2".
func entryHistory(entry guidance.Entry, step int) string {
	if entry.Since == step {
		if step == 0 {
			return "from the config"
		}
		return fmt.Sprintf("new in step %d", step)
	}
	text := fmt.Sprintf("since step %d; ", entry.Since)
	if entry.Hits+entry.Misses == 0 {
		return text + fmt.Sprintf("no answer before step %d named it", step)
	}
	return text + fmt.Sprintf("named by %s right and %s wrong answers, last in step %d",
		progress.Count(uint64(entry.Hits)), progress.Count(uint64(entry.Misses)), entry.LastUsed)
}
