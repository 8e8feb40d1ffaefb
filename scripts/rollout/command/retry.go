package command

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"rollout/shared/core/interval"
	"rollout/shared/record"
)

func retryCommand(e *Env) *cobra.Command {
	c := &cobra.Command{
		Use:   "retry RUN",
		Short: "Ask failed items of an ended run again, in a new run",
		Long: "Starts a run that asks the failed items of RUN again, with the same ids and seeds, and keeps the rows of\n" +
			"all other items: its files are complete, and those of RUN stay as they are. Prints the id of the new run.\n\n" +
			"Without a flag that selects items, these are all failed ones. Several such flags select the items of each.\n\n" +
			runHelp,
		Args: arguments(0, "RUN"),
	}
	location := locationFlags(c)
	s := selectionFlags{
		classes: c.Flags().StringSlice("class", nil,
			"items that failed with one of these `classes`, such as engine,timeout"),
		unanswered: c.Flags().Bool("unanswered", false, "items that the end of RUN left unanswered"),
		finish: c.Flags().StringSlice("finish-reason", nil,
			"answered items whose answer ended for one of these `reasons`, such as length"),
		unscored: c.Flags().Bool("unscored", false,
			"items without a score that failed for no fault of their own, or that no grader could grade"),
		trials: c.Flags().StringSlice("trial", nil, "the trials with these `ids`, such as t0.plain.r0 (repeatable)"),
		all:    c.Flags().Bool("all", false, "every item"),
	}
	set := setFlag(c, "for the items that are asked: a `setting` of sampling, request or limits, such as "+
		"sampling.max_tokens=800")
	follow := c.Flags().Bool("follow", false, "follow the new run to its end; exit with 1 if it does not succeed")
	c.Flags().BoolVar(follow, "wait", false, "the same")
	asJSON := c.Flags().Bool("json", false, "print the new run as one JSON object")
	c.RunE = func(c *cobra.Command, args []string) (err error) {
		r, err := e.openRun(c, *location, args[0])
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, r.Close()) }()
		items, err := r.service.SelectTrials(c.Context(), r.run.Run, *s.trials)
		if err != nil {
			return err
		}
		child, err := r.service.Retry(c.Context(), r.run.Run, s.selection(items), *set)
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

// setFlag adds --set, which writes settings over a config.
func setFlag(c *cobra.Command, usage string) *[]string {
	return c.Flags().StringArray("set", nil, usage+" (TOML; repeatable)")
}

// selectionFlags are the flags that select items of an ended run.
type selectionFlags struct {
	classes, finish, trials   *[]string
	unanswered, unscored, all *bool
}

// selection returns what the flags select, with the items that are its trials: all failed items
// without a flag.
func (f selectionFlags) selection(items interval.Set) record.Selection {
	s := record.Selection{Only: *f.classes, Finish: *f.finish, Items: items}
	if *f.unscored {
		s.Only = append(s.Only, record.SelectUnscored)
	}
	if *f.unanswered {
		s.Only = append(s.Only, record.SelectUnanswered)
	}
	if *f.all {
		s.Only = append(s.Only, record.SelectAll)
	}
	if len(s.Only)+len(s.Finish)+s.Items.Len() == 0 {
		s.Only = []string{record.SelectFailed}
	}
	return s
}
