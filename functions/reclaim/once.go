package reclaim

import (
	"context"
	"time"

	"rollout/shared/core/health"
	"rollout/shared/core/scaling"
	"rollout/shared/host"
)

// ScanOnce scans as a function does that a schedule calls now and then: it knows of
// no scan before, and need not. It judges workers by their heartbeats and its
// own clock alone, which others keep, as they do the workers'. Its process may
// have been stopped for any time before, as its sight of the clock is not older
// than what it reads; but nobody sees that a clock was set back. While no run is
// open it asks for the heartbeats in the first minute of each hour alone, to
// forget the long gone: all else that it reads then is an empty list.
//
// needs is told what the pools of running runs need.
func ScanOnce(ctx context.Context, p host.Ports, t health.Timings, needs func(pool string, n scaling.Demand)) error {
	r := New(p, t)
	r.stateless, r.onNeed = true, needs
	return r.Scan(ctx)
}

// hourly reports whether it is the first minute of an hour.
func hourly(now time.Time) bool { return now.Minute() == 0 }
