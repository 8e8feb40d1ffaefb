package command

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"rollout/shared/snapshot"
)

func snapshotPruneCommand(e *Env) *cobra.Command {
	c := &cobra.Command{
		Use:   "prune",
		Short: "Delete a run's old snapshots",
		Long: "Deletes the snapshots of one run that no rule keeps, and the bytes that no snapshot of any run needs any more. " +
			"A training can be gone on with from those that stay.",
		Args: arguments(0),
	}
	dir := dirFlag(c)
	runName := c.Flags().String("run", "", "of which run (demanded): "+runFlagHelp)
	var r snapshot.Retention
	c.Flags().IntVar(&r.KeepLast, "keep-last", 3, "keep the newest `n`")
	c.Flags().BoolVar(&r.KeepLabeled, "keep-labeled", true, "keep those with a label")
	c.Flags().DurationVar(&r.MaxAge, "max-age", 0, "keep those not older than this, such as 168h; 0 keeps none for its age")
	dry := c.Flags().Bool("dry-run", false, "only say what would be deleted")
	asJSON := c.Flags().Bool("json", false, "print a JSON array of what was deleted")
	c.RunE = func(c *cobra.Command, _ []string) (err error) {
		if *runName == "" {
			return usage(c, "--run is missing: snapshots are pruned run by run")
		}
		l, store, closeAll, err := e.openSnapshots(c, *dir)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, closeAll()) }()
		run, err := runOfSnapshots(c.Context(), l, store, *runName)
		if err != nil {
			return err
		}
		did, prune := "pruned", store.Prune
		if *dry {
			did, prune = "would prune", store.Expired
		}
		gone, err := prune(c.Context(), run, r)
		if err != nil && len(gone) == 0 {
			return err
		}
		if *asJSON {
			return errors.Join(err, writeJSON(e.Out, append([]snapshot.Snapshot{}, gone...)))
		}
		if *dry && len(gone) > 0 {
			if _, err := fmt.Fprint(e.Out, e.snapshotTable(gone)); err != nil {
				return err
			}
		}
		_, wrote := fmt.Fprintf(e.Out, "%s %d snapshots\n", did, len(gone))
		return errors.Join(err, wrote)
	}
	return c
}
