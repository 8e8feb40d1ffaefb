package command

import (
	"errors"
	"fmt"
	"path/filepath"

	"github.com/spf13/cobra"

	"rollout/shared/embedded/sqlite"
	"rollout/shared/installation"
)

func backupCommand(e *Env) *cobra.Command {
	c := &cobra.Command{
		Use:   "backup FILE",
		Short: "Write the state into a file, also while everything runs",
		Long: "Writes what the installation knows of its runs into a new FILE, as it is at one moment, and checks it. Inputs and answers are files in DIR/bucket: copy them as such.\n\n" +
			"`rollout restore` takes it back.",
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
		_, err = fmt.Fprintf(e.Err, "the state of %s is in %s\n", *dir, args[0])
		return err
	}
	return c
}

func restoreCommand(e *Env) *cobra.Command {
	c := &cobra.Command{
		Use:   "restore FILE",
		Short: "Take the state back from a backup",
		Long: "Makes FILE, which `rollout backup` wrote, the installation's state. Nothing else may run there: stop `rollout up` and every gpuworker first. The state that was there is kept beside it.\n\n" +
			"What happened since the backup is done again when `rollout up` is started: files in prompts/ that it does not know become runs, unfinished runs go on from where they were. A run whose summary.json is there keeps its files as they are.",
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
		kept, err := sqlite.Restore(c.Context(), installation.StateDir(*dir), args[0], e.Clock.Now())
		if err != nil {
			return err
		}
		text := fmt.Sprintf("the state of %s is that of %s: start `rollout up --dir %s` to go on\n", *dir, args[0], *dir)
		if kept != "" {
			text += fmt.Sprintf("the state that was there is %s*: remove it when all is well\n", filepath.Clean(kept))
		}
		_, err = fmt.Fprint(e.Err, text)
		return err
	}
	return c
}
