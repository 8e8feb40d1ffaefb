package command

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"rollout/functions/api"
	"rollout/functions/status"
	"rollout/shared/core/identity"
)

// runHelp explains the argument RUN. Every help text of a command with that argument ends with it.
const runHelp = "RUN is a run id, a unique prefix of one, or a name, which selects the newest run with that name."

func pauseCommand(e *Env) *cobra.Command {
	return e.steerCommand(steering{
		name:  "pause",
		short: "Pause a run",
		long: "Starts no more requests for the run. Requests in flight may finish within the run's grace period. Finished\n" +
			"items are kept; `rollout resume` continues the run.",
		doing:   "pausing",
		request: (*api.Service).Pause,
	})
}

func resumeCommand(e *Env) *cobra.Command {
	return e.steerCommand(steering{
		name:    "resume",
		other:   []string{"continue", "unpause"},
		short:   "Continue a paused run",
		long:    "Continues the run where it was paused. Finished items are not requested again.",
		doing:   "resuming",
		request: (*api.Service).Resume,
	})
}

func stopCommand(e *Env) *cobra.Command {
	return e.steerCommand(steering{
		name:  "stop",
		other: []string{"cancel", "abort", "kill", "end"},
		short: "End a run for good",
		long: "Ends the run now. It writes finished items to the run's files and an error line of class canceled for\n" +
			"every other item. A stopped run cannot be resumed; `rollout retry RUN --unanswered` asks the others in a new\n" +
			"run, which has all rows.",
		doing:   "stopping",
		request: (*api.Service).Stop,
	})
}

// steering describes a command that requests a change of a run's phase.
type steering struct {
	name, short, long string
	other             []string // names that users try for it
	doing             string   // example: "pausing"
	request           func(s *api.Service, ctx context.Context, id identity.RunID, reason string) error
}

func (e *Env) steerCommand(s steering) *cobra.Command {
	c := &cobra.Command{
		Use:   s.name + " RUN",
		Short: s.short,
		Long:  s.long + "\n\n" + runHelp,
		Args:  arguments(0, "RUN"),

		SuggestFor: s.other,
	}
	location := locationFlags(c)
	reason := c.Flags().String("reason", "", "a `text` that status shows as the reason")
	c.RunE = func(c *cobra.Command, args []string) (err error) {
		r, err := e.openRun(c, *location, args[0])
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, r.Close()) }()
		if err := s.request(r.service, c.Context(), r.run.Run, *reason); err != nil {
			return err
		}
		if _, err = fmt.Fprintf(e.Out, "%s run %s (%s)\n", s.doing, r.run.Run, r.run.Name); err != nil {
			return err
		}
		if r.Cloud != "" { // the cloud's functions fulfil the request
			return nil
		}
		// On this machine only a running `rollout up` fulfils the request.
		if alive, err := hasWorker(c.Context(), r.service, r.run.Pool); err != nil || alive {
			return err
		}
		note := fmt.Sprintf("no worker of pool %s is alive: that takes effect when `rollout up` runs", r.run.Pool)
		return e.say("%s", withLocationFlags(note, r.Location))
	}
	return c
}

func hasWorker(ctx context.Context, service *api.Service, pool string) (bool, error) {
	workers, err := service.Workers(ctx)
	return slices.ContainsFunc(workers, func(w status.WorkerStatus) bool { return w.Alive && w.Pool == pool }), err
}
