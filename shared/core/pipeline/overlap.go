package pipeline

import (
	"slices"
	"time"
)

// WarmUp is how many chunks at the start of a run are not measured.
const WarmUp = 10

// PassScore is the least score of a run whose stages overlap.
const PassScore = 0.30

// floor keeps a stage without work from a division by zero, in seconds.
const floor = 1e-6

// Timing holds the times of one chunk. The first four are of stage 0's monotonic clock;
// the others are durations that the mesh leader measured. No clocks are compared.
type Timing struct {
	Begun    time.Duration // stage 0 began to prepare the chunk
	Prepared time.Duration // its envelope was ready
	Received time.Duration // stage 0 took its result from the queue
	Emitted  time.Duration // it was decoded

	Stage1 time.Duration // the mesh generated
	Idle   time.Duration // the mesh had nothing to do before

	// The lengths of the queues when the result arrived, with the chunk itself in the
	// former and not yet in the latter.
	InFlight, Ready int
}

// Signature says what bounds a run.
type Signature string

// The signatures.
const (
	WarmingUp     Signature = "warming up"     // too few chunks
	Stage1Bound   Signature = "stage 1 bound"  // the mesh never waits
	Stage0Bound   Signature = "stage 0 bound"  // the mesh waits for stage 0
	SchedulingBug Signature = "scheduling bug" // the mesh waits for decodes, and the queues are empty
)

// Report says how well the stages overlap. Times are medians.
type Report struct {
	Chunks                       int     // measured
	OverlapScore                 float64 // hidden time over the shorter stage: 0 is none, 1 all
	Period, Stage0, Stage1, Idle time.Duration
	MaxInFlight, MaxReady        int // over all chunks
	Signature                    Signature
}

// Measure returns the report of a run's chunks, in their order.
func Measure(ts []Timing) Report {
	var r Report
	for _, t := range ts {
		r.MaxInFlight, r.MaxReady = max(r.MaxInFlight, t.InFlight), max(r.MaxReady, t.Ready)
	}
	if len(ts) <= WarmUp+1 {
		r.Signature = WarmingUp
		return r
	}
	var ratios []float64
	var periods, stage0s, stage1s, idles, decodes, inFlight, ready []time.Duration
	for k := WarmUp + 1; k < len(ts); k++ {
		t := ts[k]
		period := t.Emitted - ts[k-1].Emitted
		decode := t.Emitted - t.Received
		stage0 := t.Prepared - t.Begun + decode
		ratios = append(ratios, Overlap(period, stage0, t.Stage1))
		periods, stage0s, stage1s = append(periods, period), append(stage0s, stage0), append(stage1s, t.Stage1)
		idles, decodes = append(idles, t.Idle), append(decodes, decode)
		inFlight, ready = append(inFlight, time.Duration(t.InFlight)), append(ready, time.Duration(t.Ready))
	}
	r.Chunks, r.OverlapScore = len(ratios), median(ratios)
	r.Period, r.Stage0, r.Stage1, r.Idle = median(periods), median(stage0s), median(stage1s), median(idles)
	switch decode := median(decodes); {
	case r.Idle*10 <= r.Period:
		r.Signature = Stage1Bound
	case r.OverlapScore < PassScore && median(inFlight) <= 1 && median(ready) == 0 && r.Idle >= decode:
		r.Signature = SchedulingBug
	default:
		r.Signature = Stage0Bound
	}
	return r
}

// Overlap returns the share of the shorter stage that a period hid.
func Overlap(period, stage0, stage1 time.Duration) float64 {
	hidden := max(0, stage0+stage1-period)
	return hidden.Seconds() / max(floor, min(stage0, stage1).Seconds())
}

// median returns the middle element, the lower one of two.
func median[T float64 | time.Duration](x []T) T {
	x = slices.Sorted(slices.Values(x))
	return x[(len(x)-1)/2]
}
