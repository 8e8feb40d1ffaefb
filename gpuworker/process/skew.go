package process

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"time"

	"github.com/oklog/ulid/v2"

	"rollout/gpuworker/worker"
	"rollout/shared/blob"
	"rollout/shared/fault"
	"rollout/shared/host"
	"rollout/shared/record"
)

// How often the clock is compared with the store's: while all is well, and
// while it is not.
const (
	compareEvery = time.Minute
	compareAgain = 5 * time.Second
	// coarse is how much older than now a store may say that an object is
	// which it has just written.
	coarse = 20 * time.Millisecond
)

// errSkewed is in the error of a worker whose clock is off.
var errSkewed = errors.New("heartbeats tell the time, and others would take a worker for dead that lives, or for alive that is not")

// compareClocks puts an object and compares the time that its store gives it
// with this machine's. The error is Unavailable, and has errSkewed in it, if
// they differ by more than the budget. A probe that fails tells nothing.
func compareClocks(ctx context.Context, p host.Ports, budget time.Duration) error {
	key := record.PendingPrefix + "clock-" + ulid.Make().String()
	before := p.Clock.Now()
	info, err := p.Blobs.Put(ctx, key, strings.NewReader("what time is it?\n"), blob.PutOptions{CreateOnly: true})
	after := p.Clock.Now()
	if err != nil {
		return nil
	}
	_ = p.Blobs.Delete(ctx, key, "") // what is left behind expires
	off, how := difference(before, after, info.ModTime, budget)
	if off == 0 {
		return nil
	}
	return &fault.Error{Kind: fault.Unavailable, Err: errSkewed, Op: "this machine's clock is " + off.Round(time.Millisecond).String() + " " + how + " the store's",
		Remedy: "set it right (NTP): until then the worker takes no work"}
}

// difference is how far a clock is ahead of or behind the store's, which said
// `at` between two readings of the clock; 0 if that is within the budget.
func difference(before, after, at time.Time, budget time.Duration) (off time.Duration, how string) {
	budget += coarse
	if at.Nanosecond() == 0 {
		budget += time.Second // a store that knows whole seconds
	}
	if ahead := before.Sub(at); ahead > budget {
		return ahead, "ahead of"
	}
	if behind := at.Sub(after); behind > budget {
		return behind, "behind"
	}
	return 0, ""
}

// watchClock drains the worker as soon as its clock is off, and leaves why.
func watchClock(ctx context.Context, p host.Ports, budget time.Duration, loop *worker.Worker, why *atomic.Pointer[error]) {
	tick := time.NewTicker(compareEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			if err := compareClocks(ctx, p, budget); err != nil {
				why.Store(&err)
				loop.Drain("its clock is off")
				return
			}
		}
	}
}
