package progress

import (
	"slices"
	"time"

	"rollout/functions/diagnosis"
	"rollout/functions/status"
	"rollout/shared/core/run"
)

const (
	window     = 30 * time.Second // the rate is averaged over this time
	spacing    = time.Second      // minimum time between two kept samples
	leastSpan  = 2 * time.Second  // below, a rate would be too inaccurate
	maxSamples = int(window/spacing) + 2
)

// Pace is the current speed of a run.
type Pace struct {
	Rate       *float64 // items per second; nil if unknown
	ETASeconds *float64 // nil if unknown
}

// RateEstimator estimates the pace of one run. It uses the rate that the run's workers report, else the progress of the
// last 30 seconds, which reflects a change (a pause, more workers) sooner than the average since the start. The zero
// value is ready to use. Its memory is bounded, it reads no clock, and it must not be used concurrently.
type RateEstimator struct{ samples []sample }

type sample struct {
	at   time.Time
	done uint64 // processed items
}

// Add records the run's status at the given time and returns the pace.
func (e *RateEstimator) Add(s status.Status, at time.Time) Pace {
	if s.Phase != run.Running && s.Phase != run.Planning {
		e.samples = e.samples[:0]
		return Pace{Rate: s.Rate}
	}
	if s.LastRowAt != nil && s.Rate != nil {
		return Pace{s.Rate, s.ETASeconds}
	}
	away := func(b status.Blocker) bool { return b.Code == diagnosis.NoEngine }
	if s.Rate == nil && slices.ContainsFunc(s.Blockers, away) {
		e.samples = e.samples[:0]
		return Pace{} // the progress so far says nothing about what comes
	}
	e.take(sample{at, s.Items.Processed()})
	first, last := e.samples[0], sample{at, s.Items.Processed()}
	span := last.at.Sub(first.at)
	if span < leastSpan || last.done <= first.done {
		// No progress in the window, which is normal with large shards. The average since the start is the best estimate.
		return Pace{s.Rate, s.ETASeconds}
	}
	rate := float64(last.done-first.done) / span.Seconds()
	p := Pace{Rate: &rate}
	if s.Items.Planned {
		left := float64(s.Items.Total-min(s.Items.Total, last.done)) / rate
		p.ETASeconds = &left
	}
	return p
}

// take keeps the sample unless it follows the last one too closely, and drops samples older than the window. If time or
// counts run backwards, it drops all earlier samples.
func (e *RateEstimator) take(s sample) {
	if n := len(e.samples); n > 0 {
		last := e.samples[n-1]
		if s.at.Before(last.at) || s.done < last.done {
			e.samples = e.samples[:0]
		} else if s.at.Sub(last.at) < spacing {
			return
		}
	}
	old := 0
	for old < len(e.samples) && s.at.Sub(e.samples[old].at) > window || len(e.samples)-old >= maxSamples {
		old++
	}
	e.samples = append(e.samples[:copy(e.samples, e.samples[old:])], s)
}
