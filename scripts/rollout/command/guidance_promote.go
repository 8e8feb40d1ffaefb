package command

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"rollout/scripts/rollout/progress"
	"rollout/shared/fault"
	"rollout/shared/rollout"
)

func guidancePromoteCommand(e *Env) *cobra.Command {
	c := &cobra.Command{
		Use:   "promote RUN",
		Short: "Make another step the promoted guidance of an ended rollout",
		Long: "Replaces guidance.json of a mission by another step of the run, and notes step and time in promoted.json\n" +
			"beside it. All other files stay as they are.\n\n" + runHelp,
		Args: arguments(0, "RUN"),
	}
	location := locationFlags(c)
	step := c.Flags().Int("step", -1, "the `number` of the step, from 0")
	mission := c.Flags().String("mission", "", "the `name` of the mission, in a run of several")
	c.RunE = func(c *cobra.Command, args []string) (err error) {
		if !c.Flags().Changed("step") {
			return usage(c, "--step is missing: name the step to promote")
		}
		r, err := e.openRollout(c, openArguments{*location, args[0], *mission})
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, r.Close()) }()
		name, err := r.one(c)
		if err != nil {
			return err
		}
		if !r.run.Phase.Ended() {
			return &fault.Error{Kind: fault.Unavailable,
				Err:    fmt.Errorf("run %s has not ended: it is %s", r.run.Run, progress.FormatPhase(r.run.Phase)),
				Remedy: "wait for it with `rollout status " + string(r.run.Run) + " --watch " + r.Flags() + "`"}
		}
		if _, err := r.step(c.Context(), name, *step); err != nil {
			return err
		}
		instead, err := rollout.Promote(c.Context(), r.Ports.Blobs, r.manifest.Run, name, *step, e.Clock.Now())
		switch {
		case fault.Is(err, fault.Conflict):
			return &fault.Error{Kind: fault.Conflict, Err: err, Remedy: "another command promoted a step meanwhile: " +
				"look with `rollout guidance show`, and try again"}
		case err != nil:
			return err
		case instead == *step:
			err = e.say("step %d of mission %s is promoted already", *step, name)
			return err
		}
		err = e.say("step %d of mission %s is promoted instead of step %d", *step, name, instead)
		return err
	}
	return c
}
