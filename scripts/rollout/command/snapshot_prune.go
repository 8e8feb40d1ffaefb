package command

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"rollout/shared/figures"
	"rollout/shared/snapshot"
)

func snapshotPruneCommand(e *Env) *cobra.Command {
	c := &cobra.Command{
		Use:   "prune",
		Short: "Delete a run's old snapshots",
		Long: "Deletes the snapshots of one run that none of the --keep and --max-age flags keeps, and data that no\n" +
			"snapshot needs any longer. A training can be resumed from each remaining snapshot.",
		Args: arguments(0),
	}
	location := locationFlags(c)
	runName := c.Flags().String("run", "", "(required) "+runFlagHelp)
	var r snapshot.Retention
	c.Flags().IntVar(&r.KeepLast, "keep-last", 3, "keep the newest `n` snapshots")
	c.Flags().BoolVar(&r.KeepLabeled, "keep-labeled", true, "keep snapshots with a label")
	c.Flags().DurationVar(&r.MaxAge, "max-age", 0,
		"keep snapshots that are not older, such as 168h; 0 keeps no snapshot because of its age")
	dry := c.Flags().Bool("dry-run", false, "only show what would be deleted")
	asJSON := c.Flags().Bool("json", false, "print a JSON array of the deleted snapshots")
	c.RunE = func(c *cobra.Command, _ []string) (err error) {
		if *runName == "" {
			return usage(c, "--run is missing: name the run whose snapshots to prune")
		}
		in, store, err := e.openSnapshots(c, *location)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, in.Close()) }()
		run, err := findSnapshotRun(c.Context(), in, store, *runName)
		if err != nil {
			return err
		}
		did, prune := "pruned", store.Prune
		if *dry {
			did, prune = "would prune", store.Expired
		}
		pruned, err := prune(c.Context(), run, r)
		if err != nil && len(pruned) == 0 {
			return err
		}
		if *asJSON {
			return errors.Join(err, writeJSON(e.Out, append([]snapshot.Snapshot{}, pruned...)))
		}
		if *dry && len(pruned) > 0 {
			if _, err := fmt.Fprint(e.Out, e.snapshotTable(pruned)); err != nil {
				return err
			}
		}
		_, writeErr := fmt.Fprintf(e.Out, "%s %s\n", did, figures.Of(len(pruned), "snapshot"))
		return errors.Join(err, writeErr)
	}
	return c
}
