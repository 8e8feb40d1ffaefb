// Command bench measures the product against its goals and its peers, with real
// processes and durable stores. Each figure has a baseline from the same run.
//
//	bench [--out FILE] [-n SAMPLES] [--only MEASURES] [--rounds N]   measure, print a table, write JSON
//	bench compare OLD NEW                                            compare two such files with benchstat
//
// A missed goal is a line of the table and does not fail the command. The speed of
// machines drifts, so the rounds of compared measures are interleaved.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := command().ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		if errors.Is(err, errUsage) {
			os.Exit(2)
		}
		os.Exit(1)
	}
}

// errUsage is an error of wrong arguments.
var errUsage = errors.New("wrong arguments; see bench --help")

// options are the options of the command line.
type options struct {
	out    string // file for the figures, as JSON
	work   string // folder for the runs' folders
	n      int    // samples of a run
	rounds int
	only   []string
}

func command() *cobra.Command {
	var o options
	c := &cobra.Command{
		Use: "bench", Short: "Measure the product against its goals and its peers",
		SilenceErrors: true, SilenceUsage: true, Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return measure(c.Context(), o, c.OutOrStdout(), c.ErrOrStderr())
		},
	}
	fs := c.Flags()
	fs.StringVar(&o.out, "out", "", "`file` for the figures (default out/bench/COMMIT.json)")
	fs.StringVar(&o.work, "work", os.TempDir(), "`folder` for the runs; choose one on the disk to measure, not in memory")
	fs.IntVarP(&o.n, "samples", "n", 1_000_000, "`number` of samples of a run")
	fs.IntVar(&o.rounds, "rounds", 1, "how often each measure is taken")
	fs.StringSliceVar(&o.only, "only", nil, "the `measures` to take, of: "+names())
	c.AddCommand(compareCommand(), loopCommand())
	c.AddCommand(tinyCommands()...)
	return c
}
