package main

import (
	"context"
	"errors"
	"testing"

	"rollout/scripts/bench/prompts"
	"rollout/shared/config"
	"rollout/shared/dialect"
	"rollout/shared/engine/identity"
)

// line measures what one line of 1.2 KB takes to be parsed, named and seeded.
func line(_ context.Context, l *lab) error {
	text := prompts.Line(nil, 1, 1200)
	m := dialect.Model{URI: "mock", ID: identity.Content([]byte("mock")), Params: config.Sampling{}.Canonical()}
	var failed error
	r := testing.Benchmark(func(b *testing.B) {
		for i := range b.N {
			it, err := dialect.Parse(dialect.Plain, text)
			if err != nil {
				failed = err
				return
			}
			_ = identity.Seed(it.ItemID(m, uint64(i)), 0)
		}
	})
	if failed == nil && r.N == 0 {
		failed = errors.New("nothing was measured")
	}
	if failed != nil {
		return failed
	}
	l.report.add("Line/bytes=1200", "µs/line", float64(r.NsPerOp())/1000)
	return nil
}
