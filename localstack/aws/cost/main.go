package main

import (
	"context"
	"encoding/json"
	"errors"
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
	f.IntVar(&o.shards, "shards", 64, "least `number` of shards of the run; small files are cut into more")
	f.IntVar(&o.items, "items", 256, "largest `number` of items of a shard")
	f.IntVar(&o.workers, "workers", 2, "`number` of workers")
	f.Float64Var(&o.rate, "rate", 25,
		"samples a second that a real worker answers; its heartbeats are priced for that time")
	f.DurationVar(&o.latency, "latency", 200*time.Millisecond, "time of an answer; a worker has 64 requests in flight")
	f.StringVar(&o.source, "source", "../..", "`folder` of rollout's source")
	asJSON := f.Bool("json", false, "print a JSON object instead of tables")
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
		err = e.Encode(r)
	} else {
		err = r.write(stdout)
	}
	return errors.Join(err, r.check())
}
