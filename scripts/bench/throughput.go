package main

import (
	"context"
	"fmt"
	"time"
)

// throughput measures runs of n samples with the mock engine, which takes no time,
// and compares them with no-op jobs of River over Postgres on the same disk.
func throughput(ctx context.Context, l *runner) error {
	for _, size := range []int{300, 1200} {
		if err := l.mockRun(ctx, fmt.Sprintf("Run/bytes=%d", size), l.n, size); err != nil {
			return err
		}
	}
	return river(ctx, l)
}

// mockRun measures a run of n samples over the mock engine.
func (l *runner) mockRun(ctx context.Context, name string, n, size int) error {
	in, err := l.newRunFolder(n, size)
	if err != nil {
		return err
	}
	u, err := l.runOnce(ctx, in, "--engine", "mock")
	if err != nil {
		return err
	}
	l.report.add(name, "samples/s", float64(n)/u.wall.Seconds())
	l.report.add(name, "cpu-µs/sample", perSample(u.cpu, n))
	l.report.add(name, "peak-MiB", u.peakMiB)
	return in.remove()
}

// memory measures the peak memory of runs of different lengths and of a large
// input, with neither of which it must grow.
func memory(ctx context.Context, l *runner) error {
	if err := l.mockRun(ctx, "Short", max(1, l.n/8), 300); err != nil {
		return err
	}
	if err := l.mockRun(ctx, "Long", l.n, 300); err != nil {
		return err
	}
	return l.bigInput(ctx)
}

const bigBytes = 5e9 // of the large input, with a million samples

// bigInput submits a large file and measures the time to the first dispatch, the
// time to plan the file, and the peak memory until then.
func (l *runner) bigInput(ctx context.Context) error {
	const size = 1200
	in, err := l.newRunFolder(int(bigBytes/size*float64(l.n)/1e6), size)
	if err != nil {
		return err
	}
	up, err := l.up(ctx, in, "--engine", "mock")
	if err != nil {
		return err
	}
	defer up.kill()
	start := time.Now()
	if err := in.reveal(); err != nil {
		return err
	}
	if err := up.until(ctx, func(s runStatus) bool { return s.Shards.Dispatched > 0 }); err != nil {
		return err
	}
	l.report.add("BigInput", "first-dispatch-s", time.Since(start).Seconds())
	if err := up.until(ctx, func(s runStatus) bool { return s.Items.Planned }); err != nil {
		return err
	}
	l.report.add("BigInput", "plan-s", time.Since(start).Seconds())
	peak, err := up.peakMiB()
	if err != nil {
		return err
	}
	l.report.add("BigInput", "peak-MiB", peak)
	if err := up.stop(); err != nil {
		return err
	}
	return in.remove()
}
