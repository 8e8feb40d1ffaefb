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

// How often the clock is compared with the store's.
const (
	clockCheckEvery   = time.Minute
	clockRecheckEvery = 5 * time.Second // while it is off
	// storeGranularity is how much older than now a store may date an object that
	// it has just written.
	storeGranularity = 20 * time.Millisecond
)

// errSkewed is in the chain of the error of a worker whose clock is off.
var errSkewed = errors.New("others judge a worker by the time in its heartbeats, and would judge this one wrongly")

// compareClocks puts an object and compares the time that the store gives it with
// this machine's clock. If they differ by more than the budget, it returns
// Unavailable with errSkewed in the chain. If the put fails, it returns nil.
func compareClocks(ctx context.Context, p host.Ports, budget time.Duration) error {
	key := record.PendingPrefix + "clock-" + ulid.Make().String()
	before := p.Clock.Now()
	info, err := p.Blobs.Put(ctx, key, strings.NewReader("what time is it?\n"), blob.PutOptions{CreateOnly: true})
	after := p.Clock.Now()
	if err != nil {
		return nil
	}
	_ = p.Blobs.Delete(ctx, key, "") // an object that is left behind expires
	skew, direction := clockSkew(before, after, info.ModTime, budget)
	if skew == 0 {
		return nil
	}
	return &fault.Error{Kind: fault.Unavailable, Err: errSkewed,
		Op:     "this machine's clock is " + skew.Round(time.Millisecond).String() + " " + direction + " the store's",
		Remedy: "synchronize it (NTP); until then the worker takes no work"}
}

// clockSkew returns how far the clock is ahead of or behind the store's, whose time
// was at between two readings of the clock. It is 0 within the budget.
func clockSkew(before, after, at time.Time, budget time.Duration) (skew time.Duration, direction string) {
	budget += storeGranularity
	if at.Nanosecond() == 0 {
		budget += time.Second // the store may have whole seconds only
	}
	if ahead := before.Sub(at); ahead > budget {
		return ahead, "ahead of"
	}
	if behind := at.Sub(after); behind > budget {
		return behind, "behind"
	}
	return 0, ""
}

// watchClock drains the worker when its clock is off, and stores the error.
func watchClock(ctx context.Context, p host.Ports, budget time.Duration, w *worker.Worker,
	found *atomic.Pointer[error]) {
	tick := time.NewTicker(clockCheckEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			if err := compareClocks(ctx, p, budget); err != nil {
				found.Store(&err)
				w.Drain("the clock is off")
				return
			}
		}
	}
}
