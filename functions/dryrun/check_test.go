package dryrun_test

import (
	"context"
	"io"
	"strings"
	"testing"

	"rollout/functions/dryrun"
	"rollout/shared/config"
	"rollout/shared/fault"
)

// endless is a line without an end. It calls read before each read.
type endless struct{ read func() }

func (e endless) Read(b []byte) (int, error) {
	e.read()
	return copy(b, strings.Repeat("x", len(b))), nil
}

func (endless) Close() error { return nil }

func TestAnEndlessLineIsReadForALimitedTime(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]bool{"until it is enough": false, "until the client leaves": true} {
		ctx, cancel := context.WithCancel(t.Context())
		reads := 0
		line := endless{func() {
			if reads++; reads == 100 && end {
				cancel()
			}
		}}
		_, err := dryrun.Check(ctx, config.Run{}, config.Engine{},
			[]dryrun.File{{Name: "x.jsonl", Open: func(context.Context) (io.ReadCloser, error) {
				return struct {
					io.Reader
					io.Closer
				}{io.MultiReader(strings.NewReader("{"), line), line}, nil
			}}}, dryrun.Options{Enough: func() bool { return reads >= 1000 }})
		cancel()
		if want := map[bool]int{false: 1000, true: 100}[end]; reads != want || fault.Is(err, fault.Canceled) != end ||
			!end && err != nil {
			t.Errorf("%s: %d reads, %v", name, reads, err)
		}
	}
}
