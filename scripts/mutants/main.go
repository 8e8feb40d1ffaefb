// Command mutants checks that the tests notice faults. It applies each mutation of
// mutants.toml to a copy of the working tree, runs the seeded simulation and the unit
// tests of the mutated packages over it until one fails, and prints which did. A mutant
// that all tests pass has survived: it is a blind spot of the tests.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"regexp"
	"runtime"
	"sync"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	survived, err := run(ctx, os.Args[1:])
	switch {
	case err != nil:
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(2)
	case survived:
		os.Exit(1)
	}
}

// options are the settings of a run of the program.
type options struct {
	list       string
	only       *regexp.Regexp
	seeds      int
	jobs       int
	simulation bool // alone
	units      bool // alone
	limit      time.Duration
	goCommand  string
}

// run runs the program with the arguments, and reports whether a mutant has survived.
func run(ctx context.Context, args []string) (survived bool, err error) {
	var o options
	f := flag.NewFlagSet("mutants", flag.ContinueOnError)
	f.StringVar(&o.list, "list", "scripts/mutants/mutants.toml", "the file of mutations")
	only := f.String("run", "", "run only the mutants whose name matches this expression")
	f.IntVar(&o.seeds, "seeds", 500, "how many seeds to simulate over each mutant")
	f.IntVar(&o.jobs, "jobs", runtime.NumCPU(), "how many mutants run at once")
	f.BoolVar(&o.simulation, "simulation", false, "run the simulation alone, without unit tests")
	f.BoolVar(&o.units, "units", false, "run the unit tests alone, without the simulation")
	f.DurationVar(&o.limit, "timeout", 10*time.Minute, "how long one test may take; one that takes longer has failed")
	f.StringVar(&o.goCommand, "go", "go", "the go command")
	asJSON := f.Bool("json", false, "print the results as JSON")
	if err := f.Parse(args); err != nil {
		return false, err
	}
	if o.only, err = regexp.Compile(*only); err != nil {
		return false, fmt.Errorf("flag -run: %w", err)
	}
	mutants, err := load(o.list)
	if err != nil {
		return false, err
	}
	results, err := runAll(ctx, o, mutants)
	if err != nil {
		return false, err
	}
	if *asJSON {
		e := json.NewEncoder(os.Stdout)
		e.SetIndent("", "  ")
		err = e.Encode(results)
	} else {
		err = writeTable(os.Stdout, results)
	}
	for _, r := range results {
		survived = survived || r.KilledBy == ""
	}
	return survived, err
}

// runAll runs the mutants that o selects, o.jobs at once, each job in a copy of the tree
// of its own. The results are in the order of the mutants.
func runAll(ctx context.Context, o options, all []Mutant) ([]Result, error) {
	var selected []Mutant
	for _, m := range all {
		if o.only.MatchString(m.Name) {
			selected = append(selected, m)
		}
	}
	if len(selected) == 0 {
		return nil, fmt.Errorf("no mutant matches %q", o.only)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	results, next := make([]Result, len(selected)), make(chan int)
	var jobs sync.WaitGroup
	for range max(1, min(o.jobs, len(selected))) {
		jobs.Go(func() {
			t, err := copyTree(ctx)
			if err != nil {
				cancel(err)
				return
			}
			defer t.remove()
			for i := range next {
				r, err := t.test(ctx, o, selected[i])
				if err != nil {
					cancel(fmt.Errorf("mutant %q: %w", selected[i].Name, err))
					return
				}
				results[i] = r
				fmt.Fprintln(os.Stderr, r)
			}
		})
	}
	for i := range selected {
		select {
		case next <- i:
		case <-ctx.Done():
		}
	}
	close(next)
	jobs.Wait()
	return results, context.Cause(ctx)
}
