package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "cost:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	f := flag.NewFlagSet("cost", flag.ContinueOnError)
	f.SetOutput(stderr)
	o := options{}
	f.IntVar(&o.shards, "shards", 64, "of how many shards the run is, at least: smaller files are cut finer")
	f.IntVar(&o.items, "items", 256, "of how many items a shard is, at most")
	f.IntVar(&o.workers, "workers", 2, "how many workers answer it")
	f.Float64Var(&o.rate, "rate", 25, "how many samples a second a real worker answers: so long its heartbeats are paid for")
	f.DurationVar(&o.latency, "latency", 200*time.Millisecond, "how long an answer takes, of which a worker asks for 64 at once")
	f.StringVar(&o.source, "source", "../..", "the `folder` of rollout's source")
	asJSON := f.Bool("json", false, "print an object instead of tables")
	if err := f.Parse(args); err != nil {
		return err
	}
	m, err := measure(ctx, o)
	if err != nil {
		return err
	}
	r := newReport(m, usEast1)
	if *asJSON {
		e := json.NewEncoder(stdout)
		e.SetIndent("", "  ")
		return e.Encode(r)
	}
	return r.write(stdout)
}
