// Command peers measures no-op jobs on River over Postgres: it inserts them and
// works on them with 64 workers until each is completed. It starts its own Postgres
// in a folder, with the default durability (fsync and synchronous commits), and
// prints one line of JSON.
//
// It is in a nested module, since the product needs neither River nor Postgres.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"
)

func main() {
	dir := flag.String("dir", "", "`folder` for the database (default: a temporary one)")
	jobs := flag.Int("jobs", 60_000, "`number` of jobs")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *dir, *jobs); err != nil {
		fmt.Fprintln(os.Stderr, "peers:", err)
		os.Exit(1)
	}
}

// result is the printed result.
type result struct {
	Peer          string  `json:"peer"`
	Jobs          int     `json:"jobs"`
	Seconds       float64 `json:"seconds"`
	JobsPerSecond float64 `json:"jobs_per_second"`
	CPUMicros     float64 `json:"cpu_micros_per_job"` // of this process and the database
}

func run(ctx context.Context, dir string, jobs int) error {
	if dir == "" {
		temp, err := os.MkdirTemp("", "peers-")
		if err != nil {
			return err
		}
		defer os.RemoveAll(temp)
		dir = temp
	}
	db, err := startPostgres(ctx, filepath.Join(dir, "postgres"))
	if err != nil {
		return err
	}
	spent, workErr := riverRun(ctx, db.url, jobs)
	if err := db.stop(); err != nil && workErr == nil {
		workErr = err
	}
	if workErr != nil {
		return workErr
	}
	return json.NewEncoder(os.Stdout).Encode(result{Peer: "River + Postgres", Jobs: jobs, Seconds: spent.Seconds(),
		JobsPerSecond: float64(jobs) / spent.Seconds(), CPUMicros: float64(cpuTime().Microseconds()) / float64(jobs)})
}

// cpuTime is the CPU time of this process and its ended children.
func cpuTime() (all time.Duration) {
	for _, who := range []int{syscall.RUSAGE_SELF, syscall.RUSAGE_CHILDREN} {
		var u syscall.Rusage
		if syscall.Getrusage(who, &u) == nil {
			all += time.Duration(u.Utime.Nano() + u.Stime.Nano())
		}
	}
	return all
}
