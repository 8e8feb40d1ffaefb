package command

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"rollout/shared/record"
)

func runCommand(e *Env) *cobra.Command {
	c := &cobra.Command{
		Use:   "run",
		Short: "Make a new run of an ended one",
		Args:  unknownCommand,
		RunE:  func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(retryCommand(e))
	return c
}

func retryCommand(e *Env) *cobra.Command {
	c := &cobra.Command{
		Use:   "retry RUN",
		Short: "Ask items of an ended run again, in a new run",
		Long: "Starts a run that asks the failed items of RUN again, with the same ids and seeds, and keeps the rows of\n" +
			"all other items: its files are complete, and those of RUN stay as they are. Prints the id of the new run.\n\n" +
			runHelp,
		Args: arguments(0, "RUN"),
	}
	location := locationFlags(c)
	only := c.Flags().StringSlice("only", []string{record.SelectFailed},
		"which `items`: failed, unanswered (those that the end of RUN left), all, or classes of failures such as timeout")
	follow := c.Flags().Bool("follow", false, "follow the new run to its end; exit with 1 if it does not succeed")
	asJSON := c.Flags().Bool("json", false, "print the new run as one JSON object")
	c.RunE = func(c *cobra.Command, args []string) (err error) {
		r, err := e.openRun(c, *location, args[0])
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, r.Close()) }()
		child, err := r.service.Retry(c.Context(), r.run.Run, record.Selection{Only: *only})
		if err != nil {
			return err
		}
		line := string(child.Run)
		if *asJSON {
			b, err := json.Marshal(child)
			if err != nil {
				return err
			}
			line = string(b)
		}
		if _, err := fmt.Fprintln(e.Out, line); err != nil || !*follow {
			return err
		}
		return e.follow(c.Context(), r.Installation, r.service, child.Run, "")
	}
	return c
}
