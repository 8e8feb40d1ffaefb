// Command bench measures the product against its goals and its peers: real
// processes, durable stores, every figure beside a baseline of the same run.
//
//	bench [--out FILE] [-n SAMPLES] [--only MEASURES] [--rounds N]   measure, print a table, keep JSON
//	bench compare OLD NEW                                         two such files, with benchstat
//
// It decides nothing: a goal that is missed is a line of the table. Machines
// drift, so rounds of what is compared are interleaved.
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

// errUsage is wrong arguments.
var errUsage = errors.New("wrong arguments; see bench --help")

// options are what is measured, and how much of it.
type options struct {
	out    string // where the figures go, as JSON
	work   string // where runs are made; a new folder in it each
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
	fs.StringVar(&o.out, "out", "", "`file` for the figures; out/bench/COMMIT.json if empty")
	fs.StringVar(&o.work, "work", os.TempDir(), "`folder` for the runs: on the disk to measure, not in memory")
	fs.IntVarP(&o.n, "samples", "n", 1_000_000, "samples of a run")
	fs.IntVar(&o.rounds, "rounds", 1, "how often each is measured")
	fs.StringSliceVar(&o.only, "only", nil, "the `measures` to take: "+names())
	c.AddCommand(compareCommand(), loopCommand())
	c.AddCommand(tinyCommands()...)
	return c
}
