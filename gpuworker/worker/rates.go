package worker

import (
	"slices"
	"time"
)

// rates counts rows and tokens, of a worker or of one run in it, and how many there were
// in a second lately. It reads no clock: it is read at each heartbeat.
type rates struct {
	rows, tokens int64

	readings []reading // within rateSpan, oldest first
	rowAt    time.Time // of the first heartbeat with the newest row
}

// reading is the counters at an earlier heartbeat.
type reading struct {
	at           time.Time
	rows, tokens int64
}

const (
	rateSpan    = 30 * time.Second // that rates are taken over
	maxReadings = 128
	maxRunRates = 256 // runs that are remembered, but for those that are held
)

func (r *rates) row(k Tokens) {
	r.rows++
	r.tokens += k.Completion
}

// read notes the counters at a heartbeat. If nothing is in flight and no row came since the
// last one, the rate counts from the next work on.
func (r *rates) read(now time.Time, working bool) {
	switch n := len(r.readings); {
	case n == 0:
	case r.rows > r.readings[n-1].rows:
		r.rowAt = now.UTC()
	case !working:
		r.readings = r.readings[:0]
	}
	tooOld := func(x reading) bool { return now.Sub(x.at) > rateSpan || now.Before(x.at) }
	old := 0
	for old < len(r.readings) && (tooOld(r.readings[old]) || len(r.readings)-old >= maxReadings) {
		old++
	}
	r.readings = append(slices.Delete(r.readings, 0, old), reading{now, r.rows, r.tokens})
}

// perSecond returns the rows and tokens per second between the oldest reading and the
// newest; 0 with fewer than two.
func (r *rates) perSecond() (rows, tokens float64) {
	if len(r.readings) < 2 {
		return 0, 0
	}
	first, last := r.readings[0], r.readings[len(r.readings)-1]
	if !last.at.After(first.at) {
		return 0, 0
	}
	seconds := last.at.Sub(first.at).Seconds()
	return float64(last.rows-first.rows) / seconds, float64(last.tokens-first.tokens) / seconds
}
