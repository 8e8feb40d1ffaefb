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

// steering is a command that wants something of a run.
type steering struct {
	name, short, long string
	doing             string // "pausing"
	do                func(s *api.Service, ctx context.Context, id identity.RunID, reason string) error
}

func (e *Env) steerCommand(s steering) *cobra.Command {
	c := &cobra.Command{
		Use:   s.name + " RUN",
		Short: s.short,
		Long:  s.long + "\n\nRUN is a run's id, an unambiguous beginning of it, or a name: then the newest run of that name.",
		Args:  arguments(0, "RUN"),
	}
	place := placeFlags(c)
	reason := c.Flags().String("reason", "", "`words` for people: why")
	c.RunE = func(c *cobra.Command, args []string) (err error) {
		r, err := e.openRun(c, *place, args[0])
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, r.Close()) }()
		if err := s.do(r.service, c.Context(), r.run.Run, *reason); err != nil {
			return err
		}
		if _, err = fmt.Fprintf(e.Out, "%s run %s (%s)\n", s.doing, r.run.Run, r.run.Name); err != nil {
			return err
		}
		if r.Cloud != "" { // somebody is always there to do it
			return nil
		}
		if anyAlive, err := hasWorker(c.Context(), r.service, r.run.Pool); err != nil || anyAlive {
			return err
		}
		// It is done when somebody is there to do it.
		_, err = fmt.Fprintln(e.Err, withLocationFlags(fmt.Sprintf("no worker of pool %s is alive (start `rollout up`)", r.run.Pool), r.Location))
		return err
	}
	return c
}

func hasWorker(ctx context.Context, service *api.Service, pool string) (bool, error) {
	workers, err := service.Workers(ctx)
	return slices.ContainsFunc(workers, func(w status.WorkerStatus) bool { return w.Alive && w.Pool == pool }), err
}
