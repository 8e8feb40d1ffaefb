package progress

import (
	"time"

	"rollout/functions/api"
	"rollout/shared/core/run"
)

const (
	window     = 30 * time.Second // what a rate is taken over
	spacing    = time.Second      // between two samples that are kept
	leastSpan  = 2 * time.Second  // below, a rate means nothing
	maxSamples = int(window/spacing) + 2
)

// Pace is how fast a run goes now.
type Pace struct {
	Rate       *float64 // items per second; nil is unknown
	ETASeconds *float64 // nil is unknown
}

// RateEstimator tells a run's pace over the last half minute: by what its workers say,
// else by what came in while it was watched, which follows a change (a pause,
// more workers) sooner than the average since the start. The zero value is
// ready. Its memory is bounded; it reads no clock.
type RateEstimator struct{ samples []sample }

type sample struct {
	at      time.Time
	settled uint64
}

// Add takes the run's status at the time in and returns its pace.
func (m *RateEstimator) Add(s api.Status, at time.Time) Pace {
	if s.Phase != run.Running && s.Phase != run.Planning {
		m.samples = m.samples[:0]
		return Pace{Rate: s.Rate}
	}
	if s.LastRowAt != nil && s.Rate != nil {
		return Pace{s.Rate, s.ETASeconds}
	}
	m.take(sample{at, s.Items.Processed()})
	first, last := m.samples[0], sample{at, s.Items.Processed()}
	span := last.at.Sub(first.at)
	if span < leastSpan || last.settled <= first.settled {
		// Nothing came in while we watched: shards may be large. The average
		// since the start is the better guess.
		return Pace{s.Rate, s.ETASeconds}
	}
	rate := float64(last.settled-first.settled) / span.Seconds()
	p := Pace{Rate: &rate}
	if s.Items.Planned {
		left := float64(s.Items.Total-min(s.Items.Total, last.settled)) / rate
		p.ETASeconds = &left
	}
	return p
}

// take keeps the sample if it is the first for a while, and forgets those that
// are out of the window. Time or counts that run backwards start anew.
func (m *RateEstimator) take(s sample) {
	if n := len(m.samples); n > 0 {
		last := m.samples[n-1]
		if s.at.Before(last.at) || s.settled < last.settled {
			m.samples = m.samples[:0]
		} else if s.at.Sub(last.at) < spacing {
			return
		}
	}
	old := 0
	for old < len(m.samples) && s.at.Sub(m.samples[old].at) > window || len(m.samples)-old >= maxSamples {
		old++
	}
	m.samples = append(m.samples[:copy(m.samples, m.samples[old:])], s)
}
