package worker

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"rollout/shared/core/health"
	"rollout/shared/core/identity"
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
	total     rates
	runs      map[identity.RunID]*rates
	faults    int64
	lastFault string
	outage    error // why the engine can't answer; nil while it can
	outageNew bool  // outage was set since the last heartbeat
	durations [maxDurations]time.Duration
	answered  int // requests; the last maxDurations are in durations

	// What earlier heartbeats reported.
	outageSince time.Time
	outageSeen  time.Time // of the last heartbeat at which outage was new
}

const (
	maxDurations = 128             // requests that the median is taken over
	maxReason    = 240             // bytes of a reason in a heartbeat
	outageLasts  = 5 * time.Second // that an idle worker reports an outage without confirmation
)

// row counts an item of the run that got its row.
func (t *stats) row(run identity.RunID, k Tokens) {
	if t.meter != nil {
		t.meter.RecordTokens(k.Prompt, k.Completion, k.Wasted)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.total.row(k)
	if r := t.runs[run]; r != nil { // else it counts from the first heartbeat that lists the run
		r.row(k)
	}
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
// in flight, limit how many wait for the pool's limit; nil without one. Held are the runs
// of which the worker holds shards, with the requests in flight of each.
func (t *stats) load(now time.Time, busy int, limit *health.Limit, held map[identity.RunID]int) health.Load {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.total.read(now, busy > 0 || limit != nil && limit.Waiting > 0)
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
	l := health.Load{InFlight: busy, Rows: t.total.rows, Tokens: t.total.tokens, RowAt: t.total.rowAt,
		MedianMS: t.median().Milliseconds(), Limit: limit, Faults: t.faults, LastFault: t.lastFault,
		UnavailableReason: shortReason(t.outage), UnavailableSince: t.outageSince, Runs: t.runLoads(now, held)}
	l.Rate, l.TokenRate = t.total.perSecond()
	return l
}

// runLoads returns what the heartbeat at now reports of the held runs, and forgets those
// that are not held any more and had no row lately. Its memory is bounded by the shards
// that a worker holds within rateSpan. The caller holds t.mu.
func (t *stats) runLoads(now time.Time, held map[identity.RunID]int) []health.RunLoad {
	if t.runs == nil {
		t.runs = map[identity.RunID]*rates{}
	}
	for id, r := range t.runs {
		if _, ok := held[id]; !ok && (now.Sub(r.rowAt) > rateSpan || len(t.runs) > maxRunRates) {
			delete(t.runs, id)
		}
	}
	var out []health.RunLoad
	for _, id := range slices.Sorted(maps.Keys(held)) {
		r := t.runs[id]
		if r == nil {
			r = &rates{}
			t.runs[id] = r
		}
		// A run that gets few requests may have none in flight for a while.
		r.read(now, held[id] > 0 || now.Sub(r.rowAt) <= rateSpan)
		l := health.RunLoad{Run: id, InFlight: held[id], RowAt: r.rowAt}
		l.Rate, l.TokenRate = r.perSecond()
		out = append(out, l)
	}
	return out
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
