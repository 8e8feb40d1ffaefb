package autoscaler

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"rollout/shared/clock"
	"rollout/shared/core/scaling"
	"rollout/shared/fault"
)

// recorder is a fleet that answers as it is told to.
type recorder struct {
	err   error
	asked []string
}

func (r *recorder) ScaleUp(_ context.Context, pool string, machines int) error {
	r.asked = append(r.asked, fmt.Sprint(pool, " ", machines))
	return r.err
}

// took returns what was asked for since the last call.
func (r *recorder) took() string {
	slices.Sort(r.asked)
	defer func() { r.asked = nil }()
	return strings.Join(r.asked, ", ")
}

func raiser(f *recorder, log *slog.Logger) *Scaler {
	return New(f, scaling.Rules{ShardsPerMachine: 4, MaxMachines: 8}, Cooldown, clock.System{}, log)
}

func waits(n int) scaling.Demand { return scaling.Demand{OpenShards: n, UnclaimedShards: n} }

func TestWhatABatchNotesIsOneRequestAPool(t *testing.T) {
	t.Parallel()
	f := &recorder{}
	r := raiser(f, slog.New(slog.DiscardHandler))
	r.ScaleUp(t.Context())
	if got := f.took(); got != "" {
		t.Errorf("for nothing: %s", got)
	}
	r.Record("a", waits(3))
	r.Record("b", waits(100))
	r.Record("a", waits(7)) // of another run
	r.ScaleUp(t.Context())
	if got := f.took(); got != "a 3, b 8" {
		t.Errorf("asked for %q", got)
	}
}

func TestAFleetIsAskedAgainForMoreOrAfterAWhile(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := &recorder{}
		r := raiser(f, slog.New(slog.DiscardHandler))
		for _, c := range []struct {
			after  time.Duration
			shards int
			want   string
		}{
			{0, 5, "p 2"}, {time.Second, 5, ""}, {time.Second, 3, ""}, {time.Second, 9, "p 3"}, {time.Minute, 3, "p 1"}, {time.Second, 5, "p 2"},
		} {
			time.Sleep(c.after)
			r.Record("p", waits(c.shards))
			r.ScaleUp(t.Context())
			if got := f.took(); got != c.want {
				t.Errorf("for %d shards: asked for %q, want %q", c.shards, got, c.want)
			}
		}
	})
}

func TestAFailureIsToldAndTriedAgain(t *testing.T) {
	t.Parallel()
	var said strings.Builder
	f := &recorder{err: fault.New(fault.Throttled, "slower")}
	r := raiser(f, slog.New(slog.NewTextHandler(&said, nil)))
	for range 2 {
		r.Record("p", waits(1))
		r.ScaleUp(t.Context())
	}
	if got := f.took(); got != "p 1, p 1" || strings.Count(said.String(), "level=WARN") != 2 || !strings.Contains(said.String(), "slower") {
		t.Errorf("asked for %q and said:\n%s", got, said.String())
	}
}

func TestAPoolWithoutMachinesIsToldOfOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var said strings.Builder
		f := &recorder{err: fault.New(fault.NotFound, "there is no fleet rollout-p")}
		r := raiser(f, slog.New(slog.NewTextHandler(&said, nil)))
		for range 3 {
			r.Record("p", waits(1))
			r.ScaleUp(t.Context())
			time.Sleep(time.Minute)
		}
		if got := said.String(); strings.Count(got, "level=INFO") != 1 || strings.Contains(got, "WARN") || !strings.Contains(got, "rollout-p") {
			t.Errorf("said:\n%s", got)
		}
	})
}
