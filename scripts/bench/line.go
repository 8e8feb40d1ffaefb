package main

import (
	"bytes"
	"context"
	"log/slog"
	"syscall"
	"time"

	"rollout/events"
	"rollout/functions/plan"
	"rollout/scripts/bench/prompts"
	"rollout/shared/blob"
	"rollout/shared/clock"
	"rollout/shared/config"
	"rollout/shared/core/identity"
	"rollout/shared/dialect"
	"rollout/shared/host"
	drivers "rollout/shared/memory"
	"rollout/shared/record"
)

const lineRounds = 200_000 // about a second of work

// line measures the CPU time of parsing a line of 1.2 KB and computing its item id
// and seed, and that of planning such a line.
func line(ctx context.Context, l *runner) error {
	text := prompts.Line(nil, 1, 1200)
	m := dialect.Model{URI: "mock", ID: identity.Content([]byte("mock")), Params: config.Sampling{}.Canonical()}
	before, err := cpuTime()
	if err != nil {
		return err
	}
	for i := range uint64(lineRounds) {
		it, err := dialect.Parse(dialect.Plain, text)
		if err != nil {
			return err
		}
		_ = identity.Seed(it.ItemID(m, i), 0)
	}
	after, err := cpuTime()
	if err != nil {
		return err
	}
	l.report.add("Line/bytes=1200", "cpu-µs/line", perSample(after-before, lineRounds))
	return planLines(ctx, l)
}

const plannedLines = 50_000 // of 1.2 KB, in one range

// planLines measures the CPU time of planning a line of 1.2 KB without an id of its own,
// and with one.
func planLines(ctx context.Context, l *runner) error {
	var bare float64
	for _, name := range []string{"bare", "ids"} {
		var file []byte
		for i := range plannedLines {
			start := len(file)
			file = prompts.Line(file, i, 1200)
			if name == "bare" { // the user's own member instead
				copy(file[start:], `{"no"`)
			}
		}
		var took time.Duration
		for range 8 {
			once, err := planOnce(ctx, file)
			if err != nil {
				return err
			}
			took += once
		}
		cost := perSample(took, 8*plannedLines)
		l.report.add("Plan/"+name, "cpu-µs/line", cost)
		if name == "bare" {
			bare = cost
			continue
		}
		l.report.add("Plan/"+name, "×bare", cost/bare)
	}
	return nil
}

// planOnce returns the CPU time of planning a run over the file.
func planOnce(ctx context.Context, file []byte) (time.Duration, error) {
	const id = identity.RunID("01JD2ZQ4T5W0M1X9YB7R3K8CVE")
	c := clock.System{}
	ports := host.Ports{Blobs: drivers.NewBucket(c), Docs: drivers.NewDocuments(), Queues: drivers.NewQueues(c), Clock: c,
		Log: slog.New(slog.DiscardHandler), Source: "bench"}
	info, err := ports.Blobs.Put(ctx, "prompts/p.jsonl", bytes.NewReader(file), blob.PutOptions{})
	if err != nil {
		return 0, err
	}
	m := record.Manifest{Schema: record.Schema, Run: id, Kind: config.KindBatch, CreatedAt: c.Now(),
		Dialect: string(dialect.Plain), Config: config.DefaultRun(), ModelURI: "mock",
		ModelID: identity.Model("mock", "").String(), Pool: "default",
		Inputs: []record.Input{{Key: info.Key, Version: info.Version, Size: info.Size}}}
	if _, err := ports.Docs.Create(ctx, record.ManifestKey(id), record.Encode(m)); err != nil {
		return 0, err
	}
	before, err := cpuTime()
	if err != nil {
		return 0, err
	}
	p := plan.New(ports, plan.Options{})
	if err := p.Submitted(ctx, events.RunSubmitted{Run: string(id)}); err != nil {
		return 0, err
	}
	if err := p.CutRange(ctx, events.PlanRange{Run: string(id)}); err != nil {
		return 0, err
	}
	after, err := cpuTime()
	return after - before, err
}

// cpuTime is the CPU time of this process so far.
func cpuTime() (time.Duration, error) {
	var u syscall.Rusage
	err := syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()), err
}
