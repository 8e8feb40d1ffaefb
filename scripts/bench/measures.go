package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// measures are all measures, in the order of the table.
func measures() []struct {
	name string
	take func(context.Context, *runner) error
} {
	return []struct {
		name string
		take func(context.Context, *runner) error
	}{
		{"overhead", overhead}, {"throughput", throughput}, {"counts", counts}, {"memory", memory},
		{"beats", heartbeats}, {"line", line}, {"dispatch", dispatch}, {"takeover", takeover}, {"shares", shares},
		{"join", joined}, {"online", online}, {"status", endedRuns}, {"idle", idle}, {"tiny", tiny}, {"rollouts", rollouts},
		{"trials", trialRuns},
		{"vllm", func(ctx context.Context, l *runner) error { return realServer(ctx, l, vllmCase()) }},
		{"llamacpp", func(ctx context.Context, l *runner) error { return realServer(ctx, l, llamacppCase()) }},
	}
}

func names() string {
	var all []string
	for _, m := range measures() {
		all = append(all, m.name)
	}
	return strings.Join(all, ", ")
}

// measure takes the measures, prints the table and writes the file.
func measure(ctx context.Context, o options, out, log io.Writer) error {
	for _, name := range o.only {
		if !slices.Contains(strings.Split(names(), ", "), name) {
			return fmt.Errorf("%w: unknown measure %q: choose from %s", errUsage, name, names())
		}
	}
	dir, err := os.MkdirTemp(o.work, "rollout-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	l := &runner{options: o, report: newReport(time.Now()), dir: dir, log: log}
	if err := l.build(ctx); err != nil {
		return err
	}
	for _, m := range measures() {
		if len(o.only) > 0 && !slices.Contains(o.only, m.name) {
			continue
		}
		for round := range o.rounds {
			l.say("%s, round %d of %d", m.name, round+1, o.rounds)
			err := m.take(ctx, l)
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if err != nil { // the other measures go on
				l.note("%s was not measured: %v", m.name, err)
			}
		}
	}
	path := o.out
	if path == "" {
		path = filepath.Join("out", "bench", l.report.Commit+".json")
	}
	if err := l.report.save(path); err != nil {
		return err
	}
	if err := l.report.table(out); err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "\nwritten to %s; compare two files with: make bench-compare OLD=… NEW=…\n", path)
	return err
}
