package worker

import (
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"rollout/shared/core/health"
	"rollout/shared/fault"
	"rollout/shared/observe"
	"rollout/shared/text"
)

// stats counts rows, tokens, requests and faults of the worker for its
// heartbeats. It reads no clock: events get the time of the heartbeat that first
// reports them. Its memory is bounded. It is safe for concurrent use.
type stats struct {
	meter observe.Meter // may be nil

	mu        sync.Mutex
	rows      int64
	tokens    int64
	faults    int64
	lastFault string
	outage    error // why the engine can't answer; nil while it can
	outageNew bool  // outage was set since the last heartbeat
	durations [maxDurations]time.Duration
	answered  int // requests; the last maxDurations are in durations

	// What earlier heartbeats reported.
	readings    []reading // within rateSpan, oldest first
	rowAt       time.Time // of the first heartbeat with the newest row
	outageSince time.Time
	outageSeen  time.Time // of the last heartbeat at which outage was new
}

// reading is the counters at an earlier heartbeat.
type reading struct {
	at           time.Time
	rows, tokens int64
}

const (
	maxDurations = 128              // requests that the median is taken over
	rateSpan     = 30 * time.Second // that rates are taken over
	maxReadings  = 128
	maxReason    = 240             // bytes of a reason in a heartbeat
	outageLasts  = 5 * time.Second // that an idle worker reports an outage without confirmation
)

// row counts an item that got its row.
func (t *stats) row(k Tokens) {
	if t.meter != nil {
		t.meter.RecordTokens(k.Prompt, k.Completion, k.Wasted)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.rows++
	t.tokens += k.Completion
}

// wasted counts tokens that led to no row.
func (t *stats) wasted(tokens int64) {
	if t.meter != nil {
		t.meter.RecordTokens(0, 0, tokens)
	}
}

// request counts a request that ended with err. A fault of the item (Invalid) or
// a cancelled request says nothing about the engine.
func (t *stats) request(d time.Duration, err error) {
	if t.meter != nil {
		t.meter.RecordRequest(d, err)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case err == nil:
		t.durations[t.answered%maxDurations] = d
		t.answered++
		t.outage = nil
	case fault.Is(err, fault.Unavailable):
		t.outage, t.outageNew = err, true
		t.countFault(err)
	case !fault.Is(err, fault.Invalid) && !fault.Is(err, fault.Canceled):
		t.countFault(err)
	}
}

func (t *stats) countFault(err error) {
	t.faults++
	t.lastFault = fault.KindOf(err).String()
	if c := fault.ClassOf(err); c != "" {
		t.lastFault = string(c)
	}
}

// ready records the result of asking the engine whether it can answer.
func (t *stats) ready(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.outage, t.outageNew = err, true
}

// load returns what the heartbeat at now reports. Busy is how many requests are
// in flight, limit how many wait for the pool's limit; nil without one.
func (t *stats) load(now time.Time, busy int, limit *health.Limit) health.Load {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch n := len(t.readings); {
	case n == 0:
	case t.rows > t.readings[n-1].rows:
		t.rowAt = now.UTC()
	case busy == 0 && (limit == nil || limit.Waiting == 0): // idle: the rate counts from the next work
		t.readings = t.readings[:0]
	}
	if t.outageNew {
		t.outageNew, t.outageSeen = false, now
	}
	if busy == 0 && now.Sub(t.outageSeen) > outageLasts { // no request would notice its end
		t.outage = nil
	}
	switch {
	case t.outage == nil:
		t.outageSince = time.Time{}
	case t.outageSince.IsZero():
		t.outageSince = now.UTC()
	}
	t.addReading(reading{now, t.rows, t.tokens})
	l := health.Load{InFlight: busy, Rows: t.rows, Tokens: t.tokens, RowAt: t.rowAt, MedianMS: t.median().Milliseconds(),
		Limit: limit, Faults: t.faults,
		LastFault: t.lastFault, UnavailableReason: shortReason(t.outage), UnavailableSince: t.outageSince}
	if first := t.readings[0]; now.After(first.at) {
		seconds := now.Sub(first.at).Seconds()
		l.Rate, l.TokenRate = float64(t.rows-first.rows)/seconds, float64(t.tokens-first.tokens)/seconds
	}
	return l
}

// addReading adds the counters at a heartbeat and drops those out of rateSpan.
func (t *stats) addReading(now reading) {
	tooOld := func(r reading) bool { return now.at.Sub(r.at) > rateSpan || now.at.Before(r.at) }
	old := 0
	for old < len(t.readings) && (tooOld(t.readings[old]) || len(t.readings)-old >= maxReadings) {
		old++
	}
	t.readings = append(slices.Delete(t.readings, 0, old), now)
}

func (t *stats) median() time.Duration {
	n := min(t.answered, maxDurations)
	if n == 0 {
		return 0
	}
	sorted := slices.Clone(t.durations[:n])
	slices.Sort(sorted)
	return sorted[n/2]
}

// recentDurations returns how long the last answered requests took.
func (t *stats) recentDurations() []time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.durations[:min(t.answered, maxDurations)])
}

// shortReason returns the error's text at a heartbeat's length. A long text
// gives way to that of its innermost cause, which says most.
func shortReason(err error) string {
	if err == nil {
		return ""
	}
	reason := err.Error()
	for inner := errors.Unwrap(err); len(reason) > maxReason && inner != nil; inner = errors.Unwrap(inner) {
		reason = inner.Error()
	}
	return Truncate(reason)
}

// Truncate cuts a text to the length of a reason in a heartbeat.
func Truncate(s string) string {
	return text.Truncate(strings.ToValidUTF8(s, ""), maxReason, "")
}
