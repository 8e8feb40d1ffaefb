// Command lambda checks the builds of the functions of AWS Lambda against their
// budgets: how large the archive is that is deployed, and how long a process
// takes from its start until it asks the runtime API for its first event. It
// prints a table, and ends with 1 if one is over.
//
//	lambda ARCHIVED STARTED
//
// Both are folders with a folder for each function and its bootstrap in that:
// ARCHIVED as deployed, STARTED for this machine. It talks to nobody but the
// processes that it starts.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"text/tabwriter"
	"time"
)

// Budgets.
const (
	maxArchive = 8 << 20
	maxStart   = 150 * time.Millisecond
	starts     = 20 // of which the median counts
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: lambda ARCHIVED STARTED")
		os.Exit(2)
	}
	if err := check(context.Background(), os.Stdout, os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "lambda:", err)
		os.Exit(1)
	}
}

func check(ctx context.Context, w io.Writer, archived, started string) error {
	found, err := filepath.Glob(filepath.Join(archived, "*", bootstrap))
	if err != nil || len(found) == 0 {
		return errors.Join(err, fmt.Errorf("there is no */%s in %s", bootstrap, archived))
	}
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(table, "function\tbinary\tarchive\tfirst poll (median of %d)\tslowest\n", starts)
	var over error
	for _, path := range found {
		name := filepath.Base(filepath.Dir(path))
		binary, archive, err := sizes(path)
		if err != nil {
			return err
		}
		took, err := pollTimes(ctx, filepath.Join(started, name, bootstrap), starts)
		if err != nil {
			return fmt.Errorf("start %s: %w", name, err)
		}
		slices.Sort(took)
		median := took[len(took)/2]
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\n", name, megabytes(binary), megabytes(archive), round(median), round(took[len(took)-1]))
		if archive > maxArchive {
			over = errors.Join(over, fmt.Errorf("the archive of %s has %s, more than %s", name, megabytes(archive), megabytes(maxArchive)))
		}
		if median > maxStart {
			over = errors.Join(over, fmt.Errorf("%s takes %s to its first poll, longer than %s", name, round(median), maxStart))
		}
	}
	return errors.Join(table.Flush(), over)
}

func megabytes(n int64) string { return fmt.Sprintf("%.1f MB", float64(n)/1e6) }

func round(d time.Duration) time.Duration { return d.Round(time.Millisecond) }
