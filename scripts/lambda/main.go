// Command lambda checks the builds of the Lambda functions against their
// budgets: the size of the archive that is deployed, and the time from the
// start of a process until it asks the runtime API for its first event. It
// prints a table, and exits with 1 if a function is over a budget.
//
//	lambda ARCHIVED STARTED
//
// Both folders have a folder for each function, with the file bootstrap in it:
// those in ARCHIVED as they are deployed, those in STARTED for this machine.
// The command talks only to the processes that it starts.
package main

import (
	"archive/zip"
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
	maxStart   = 150 * time.Millisecond // of the median
	starts     = 20
)

// bootstrap is the name of the program that Lambda starts.
const bootstrap = "bootstrap"

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

// check writes the table to w and returns an error for every budget that a
// function exceeds.
func check(ctx context.Context, w io.Writer, archived, started string) error {
	programs, err := filepath.Glob(filepath.Join(archived, "*", bootstrap))
	if err != nil || len(programs) == 0 {
		return errors.Join(err, fmt.Errorf("%s has no */%s: run make lambda", archived, bootstrap))
	}
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(table, "function\tbinary\tarchive\tfirst poll (median of %d)\tslowest\n", starts)
	var over error
	for _, path := range programs {
		name := filepath.Base(filepath.Dir(path))
		binary, archive, err := sizes(path)
		if err != nil {
			return err
		}
		times, err := pollTimes(ctx, filepath.Join(started, name, bootstrap), starts)
		if err != nil {
			return fmt.Errorf("start %s: %w", name, err)
		}
		slices.Sort(times)
		median, slowest := times[len(times)/2], times[len(times)-1]
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\n",
			name, megabytes(binary), megabytes(archive), round(median), round(slowest))
		if archive > maxArchive {
			over = errors.Join(over, fmt.Errorf("the archive of %s has %s, more than %s",
				name, megabytes(archive), megabytes(maxArchive)))
		}
		if median > maxStart {
			over = errors.Join(over, fmt.Errorf("%s takes %s to its first poll, longer than %s",
				name, round(median), maxStart))
		}
	}
	return errors.Join(table.Flush(), over)
}

// sizes returns the bytes of a file, and of a zip archive with only this file.
func sizes(path string) (file, archive int64, err error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, 0, err
	}
	defer f.Close() // read only: nothing can be lost
	var size counter
	z := zip.NewWriter(&size)
	entry, err := z.Create(bootstrap)
	if err != nil {
		return 0, 0, err
	}
	file, err = io.Copy(entry, f)
	err = errors.Join(err, z.Close())
	return file, int64(size), err
}

// counter counts the bytes that are written to it.
type counter int64

func (c *counter) Write(b []byte) (int, error) {
	*c += counter(len(b))
	return len(b), nil
}

func megabytes(n int64) string { return fmt.Sprintf("%.1f MB", float64(n)/1e6) }

func round(d time.Duration) time.Duration { return d.Round(time.Millisecond) }
