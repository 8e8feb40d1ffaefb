package main

import (
	"context"
	"syscall"
	"time"

	"rollout/scripts/bench/prompts"
	"rollout/shared/config"
	"rollout/shared/core/identity"
	"rollout/shared/dialect"
)

const lineRounds = 200_000 // about a second of work

// line measures the CPU time of parsing a line of 1.2 KB and computing its item id
// and seed.
func line(_ context.Context, l *runner) error {
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
	return nil
}

// cpuTime is the CPU time of this process so far.
func cpuTime() (time.Duration, error) {
	var u syscall.Rusage
	err := syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()), err
}
