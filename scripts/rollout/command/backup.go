package command

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/spf13/cobra"

	"rollout/functions/reclaim"
	"rollout/shared/clock"
	"rollout/shared/embedded/sqlite"
	"rollout/shared/installation"
)

func backupCommand(e *Env) *cobra.Command {
	c := &cobra.Command{
		Use:   "backup FILE",
		Short: "Back up the state to a file, also while rollout runs",
		Long: "Writes a consistent copy of the installation's state (what it knows about its runs) into a new FILE and\n" +
			"checks it. Inputs and results are files in DIR/bucket: copy them yourself.\n\n" +
			"`rollout restore` restores the state.",
		Args: arguments(0, "FILE"),
	}
	dir := dirFlag(c)
	c.RunE = func(c *cobra.Command, args []string) (err error) {
		l, closeAll, err := e.openLocal(c, *dir)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, closeAll()) }()
		if err := l.State.Backup(c.Context(), args[0]); err != nil {
			return err
		}
		err = e.say("backed up the state of %s to %s", *dir, args[0])
		return err
	}
	return c
}

func restoreCommand(e *Env) *cobra.Command {
	c := &cobra.Command{
		Use:   "restore FILE",
		Short: "Restore the state from a backup",
		Long: "Replaces the installation's state with FILE, which `rollout backup` wrote. Stop `rollout up` and every\n" +
			"gpuworker first. The old state is kept next to the new one.\n\n" +
			"When you start `rollout up`, it repeats what happened since the backup: files in prompts/ that the backup\n" +
			"does not know become runs, and unfinished runs continue from their state in the backup. A run whose\n" +
			"summary.json exists keeps its files unchanged.",
		Args: arguments(0, "FILE"),
	}
	dir := dirFlag(c)
	c.RunE = func(c *cobra.Command, args []string) (err error) {
		if err := needDir(c, *dir); err != nil {
			return err
		}
		release, err := installation.AcquireLock(*dir)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, release()) }()
		kept, err := sqlite.Restore(c.Context(), installation.StateDir(*dir), args[0], sqlite.Options{Clock: e.Clock})
		if err != nil {
			return err
		}
		if err := keepUploads(c.Context(), *dir, e.Clock); err != nil {
			return err
		}
		text := fmt.Sprintf("restored the state of %s from %s: start `rollout up --dir %s` to continue",
			*dir, args[0], *dir)
		if kept != "" {
			text += fmt.Sprintf("\nthe old state is kept as %s*: remove it when you no longer need it",
				filepath.Clean(kept))
		}
		return e.say("%s", text)
	}
	return c
}

// keepUploads lets files that were uploaded since the backup stay, which it does not know.
func keepUploads(ctx context.Context, dir string, now clock.Clock) error {
	state, err := sqlite.Open(ctx, installation.StateDir(dir), sqlite.Options{Clock: now})
	if err != nil {
		return err
	}
	return errors.Join(reclaim.ForgetSweeps(ctx, state.Documents()), state.Close())
}
