package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
)

func speedCommand() *cobra.Command {
	var s trainingFlags
	var seconds int
	var verbose bool
	c := &cobra.Command{
		Use:   "speed",
		Short: "measure how many training steps fit into a given time on this machine",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if seconds < 1 {
				return errors.New("--seconds must be at least 1")
			}
			t, _, err := s.open("", false)
			if err != nil {
				return err
			}
			var spent time.Duration
			steps := 0
			for spent < 8*time.Second && c.Context().Err() == nil {
				begin := time.Now()
				if _, err := t.Step(); err != nil {
					return err
				}
				if t.StepsDone() > 3 { // the first steps are slower, because they allocate memory
					spent += time.Since(begin)
					steps++
				}
			}
			if verbose {
				rate := float64(steps*s.recipe.Batch*s.recipe.Context) / spent.Seconds()
				fmt.Fprintf(c.ErrOrStderr(), "%.0f tokens/s with %d threads\n", rate, s.threads)
			}
			fmt.Fprintln(c.OutOrStdout(), int(float64(seconds)/spent.Seconds()*float64(steps)))
			return c.Context().Err()
		},
	}
	s.register(c)
	c.Flags().IntVar(&seconds, "seconds", 500, "the given time, in seconds")
	c.Flags().BoolVarP(&verbose, "verbose", "v", false, "also print tokens/s to standard error")
	return c
}
