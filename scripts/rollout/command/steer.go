package command

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"rollout/functions/api"
	"rollout/shared/engine/identity"
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
	dir := dirFlag(c)
	reason := c.Flags().String("reason", "", "`words` for people: why")
	c.RunE = func(c *cobra.Command, args []string) (err error) {
		l, closeAll, err := e.open(c, *dir)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, closeAll()) }()
		service := api.New(l.Ports, l.Deployment)
		runs, err := service.List(c.Context())
		if err != nil {
			return err
		}
		r, err := choose(runs, args[0])
		if err != nil {
			return err
		}
		if err := s.do(service, c.Context(), r.Run, *reason); err != nil {
			return err
		}
		if _, err = fmt.Fprintf(e.Out, "%s run %s (%s)\n", s.doing, r.Run, r.Name); err != nil {
			return err
		}
		if anyAlive, err := hasWorker(c.Context(), service, r.Pool); err != nil || anyAlive {
			return err
		}
		// It is done when somebody is there to do it.
		_, err = fmt.Fprintln(e.Err, here(fmt.Sprintf("no worker of pool %s is alive (start `rollout up`)", r.Pool), *dir))
		return err
	}
	return c
}

func hasWorker(ctx context.Context, service *api.Service, pool string) (bool, error) {
	workers, err := service.Workers(ctx)
	return slices.ContainsFunc(workers, func(w api.WorkerStatus) bool { return w.Alive && w.Pool == pool }), err
}
