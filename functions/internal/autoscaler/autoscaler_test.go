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

// recorder is a fleet that records requests and returns err.
type recorder struct {
	err   error
	asked []string
}

func (r *recorder) ScaleUp(_ context.Context, pool string, machines int) error {
	r.asked = append(r.asked, fmt.Sprint(pool, " ", machines))
	return r.err
}

// requests returns the requests since the last call, sorted.
func (r *recorder) requests() string {
	slices.Sort(r.asked)
	defer func() { r.asked = nil }()
	return strings.Join(r.asked, ", ")
}

func newScaler(f *recorder, log *slog.Logger) *Scaler {
	return New(f, Options{Rules: scaling.Rules{ShardsPerMachine: 4, MaxMachines: 8}, Cooldown: Cooldown,
		Clock: clock.System{}, Log: log})
}

// unclaimed is the demand of n shards that no worker holds.
func unclaimed(n int) scaling.Demand { return scaling.Demand{OpenShards: n, UnclaimedShards: n} }

func TestPoolWithRulesOfItsOwnGetsItsMachines(t *testing.T) {
	t.Parallel()
	f := &recorder{}
	r := New(f, Options{Rules: scaling.Rules{ShardsPerMachine: 4, MaxMachines: 8}, Cooldown: Cooldown,
		Own:   map[string]scaling.Rules{"trainers": {ShardsPerMachine: 1, MaxMachines: 8}},
		Clock: clock.System{}, Log: slog.New(slog.DiscardHandler)})
	r.Record("a", unclaimed(3))
	r.Record("trainers", unclaimed(3))
	r.ScaleUp(t.Context())
	if got := f.requests(); got != "a 1, trainers 3" {
		t.Errorf("requested %q", got)
	}
}

func TestDemandOfABatchIsOneRequestForEachPool(t *testing.T) {
	t.Parallel()
	f := &recorder{}
	r := newScaler(f, slog.New(slog.DiscardHandler))
	r.ScaleUp(t.Context())
	if got := f.requests(); got != "" {
		t.Errorf("without demand it requested %s", got)
	}
	r.Record("a", unclaimed(3))
	r.Record("b", unclaimed(100))
	r.Record("a", unclaimed(7)) // of another run
	r.ScaleUp(t.Context())
	if got := f.requests(); got != "a 3, b 8" {
		t.Errorf("requested %q", got)
	}
}

// A run with a budget in dollars adds machines that its budget pays for to those of others.
func TestBudgetOfARunHoldsItsOwnMachinesBack(t *testing.T) {
	t.Parallel()
	f := &recorder{}
	r := newScaler(f, slog.New(slog.DiscardHandler))
	r.opts.Hour = func(pool string) float64 { return map[string]float64{"a": 1, "b": 2}[pool] }
	poor := unclaimed(1000)
	poor.LeftMicroUSD = 500_000
	r.Record("a", poor)
	r.Record("b", poor)
	r.Record("c", poor) // its machines have no price
	r.ScaleUp(t.Context())
	if got := f.requests(); got != "a 2, b 1, c 8" {
		t.Errorf("requested %q", got)
	}
	r.Record("a", poor)
	r.Record("a", unclaimed(8)) // of a run without a budget
	r.ScaleUp(t.Context())
	if got := f.requests(); got != "a 4" {
		t.Errorf("with another run it requested %q", got)
	}
}

// patient is a recorder that can withdraw requests.
type patient struct{ recorder }

func (p *patient) Withdraw(_ context.Context, pool string) error {
	p.asked = append(p.asked, "withdraw "+pool)
	return p.err
}

func TestSettleWithdrawsTheRequestsOfPoolsWithoutDemand(t *testing.T) {
	t.Parallel()
	f := &patient{}
	r := New(f, Options{Rules: scaling.Rules{ShardsPerMachine: 4, MaxMachines: 8}, Pools: []string{"a", "b", "c"},
		Clock: clock.System{}, Log: slog.New(slog.DiscardHandler)})
	r.Record("a", unclaimed(3))
	r.Record("b", scaling.Demand{OpenShards: 3, LiveMachines: 1}) // all are claimed
	r.Settle(t.Context())
	if got := f.requests(); got != "a 1, withdraw b, withdraw c" {
		t.Errorf("requested %q", got)
	}
	r.Settle(t.Context())
	if got := f.requests(); got != "withdraw a, withdraw b, withdraw c" {
		t.Errorf("without demand it requested %q", got)
	}
	never := newScaler(&recorder{}, slog.New(slog.DiscardHandler))
	never.Settle(t.Context()) // a fleet that keeps asking
}

// The fleet of a pool whose machines fail must not start one after the other.
func TestPoolWaitsBetweenFailedBoots(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := &patient{}
		boots := scaling.Boots{Failures: 2, RetryAt: time.Now().Add(2 * time.Minute)}
		var broken error
		r := New(f, Options{Rules: scaling.Rules{ShardsPerMachine: 4, MaxMachines: 8}, Pools: []string{"a", "b"},
			Cooldown: Cooldown, Clock: clock.System{}, Log: slog.New(slog.DiscardHandler),
			Boots: func(_ context.Context, pool string) (scaling.Boots, error) {
				if pool == "b" {
					return scaling.Boots{}, nil
				}
				return boots, broken
			}})
		for _, want := range []string{"b 1, withdraw a", "b 1, withdraw a", "a 1, b 1"} {
			r.Record("a", unclaimed(3))
			r.Record("b", unclaimed(3))
			r.Settle(t.Context())
			if got := f.requests(); got != want {
				t.Errorf("requested %q, want %q", got, want)
			}
			time.Sleep(time.Minute)
		}
		boots.RetryAt, broken = time.Now().Add(time.Hour), fault.New(fault.Unavailable, "away")
		r.Record("a", unclaimed(3))
		r.ScaleUp(t.Context())
		if got := f.requests(); got != "a 1" {
			t.Errorf("while its boots can't be read: %q", got)
		}
	})
}

func TestRequestIsRepeatedForMoreMachinesOrAfterTheCooldown(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := &recorder{}
		r := newScaler(f, slog.New(slog.DiscardHandler))
		for _, c := range []struct {
			after  time.Duration
			shards int
			want   string
		}{
			{0, 5, "p 2"}, {time.Second, 5, ""}, {time.Second, 3, ""},
			{time.Second, 9, "p 3"}, {time.Minute, 3, "p 1"}, {time.Second, 5, "p 2"},
		} {
			time.Sleep(c.after)
			r.Record("p", unclaimed(c.shards))
			r.ScaleUp(t.Context())
			if got := f.requests(); got != c.want {
				t.Errorf("for %d shards: requested %q, want %q", c.shards, got, c.want)
			}
		}
	})
}

func TestFailedRequestIsLoggedAndRepeated(t *testing.T) {
	t.Parallel()
	var log strings.Builder
	f := &recorder{err: fault.New(fault.Throttled, "slower")}
	r := newScaler(f, slog.New(slog.NewTextHandler(&log, nil)))
	for range 2 {
		r.Record("p", unclaimed(1))
		r.ScaleUp(t.Context())
	}
	got, lines := f.requests(), log.String()
	if got != "p 1, p 1" || strings.Count(lines, "level=WARN") != 2 || !strings.Contains(lines, "slower") {
		t.Errorf("requested %q and logged:\n%s", got, lines)
	}
}

func TestPoolWithoutAFleetIsLoggedOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		f := &recorder{err: fault.New(fault.NotFound, "there is no fleet rollout-p")}
		r := newScaler(f, slog.New(slog.NewTextHandler(&log, nil)))
		for range 3 {
			r.Record("p", unclaimed(1))
			r.ScaleUp(t.Context())
			time.Sleep(time.Minute)
		}
		got := log.String()
		if strings.Count(got, "level=INFO") != 1 || strings.Contains(got, "WARN") || !strings.Contains(got, "rollout-p") {
			t.Errorf("logged:\n%s", got)
		}
	})
}
