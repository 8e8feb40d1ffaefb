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

// stats counts what the worker gets out of its engine, for its heartbeats to
// tell. It reads no clock: what happened is put down at the beat that tells
// it. Its memory is bounded.
type stats struct {
	meter observe.Meter // may be nil

	mu      sync.Mutex
	rows    int64
	tokens  int64
	faults  int64
	fault   string
	away    error // why the engine can't answer; nil while it can
	said    bool  // that, since the last beat
	took    [tookKept]time.Duration
	answers int // requests answered; the last tookKept are in took

	// What earlier beats told.
	told   []told
	rowAt  time.Time
	awayAt time.Time // since when the engine is away
	saidAt time.Time // when somebody last said that it is
}

// told is what was counted at an earlier beat.
type told struct {
	at           time.Time
	rows, tokens int64
}

const (
	tookKept   = 128              // requests that a median is taken over
	rateSpan   = 30 * time.Second // what a rate is taken over
	maxTold    = 128              // beats within it, at most
	awayLength = 240              // bytes of why an engine is away
	awayLasts  = 5 * time.Second  // that it is away, if nobody says so again
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

// asked takes in how a request ended. A fault of the item's own says nothing
// about the engine.
func (t *stats) asked(d time.Duration, err error) {
	if t.meter != nil {
		t.meter.RecordRequest(d, err)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case err == nil:
		t.took[t.answers%tookKept] = d
		t.answers++
		t.away = nil
	case fault.Is(err, fault.Unavailable):
		t.away, t.said = err, true
		t.count(err)
	case !fault.Is(err, fault.Invalid) && !fault.Is(err, fault.Canceled):
		t.count(err)
	}
}

func (t *stats) count(err error) {
	t.faults++
	t.fault = fault.KindOf(err).String()
	if c := fault.ClassOf(err); c != "" {
		t.fault = string(c)
	}
}

// ready takes in what the engine says when it is asked whether it can answer.
func (t *stats) ready(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.away, t.said = err, true
}

// load is what the beat at now tells; busy is how many requests are under way.
func (t *stats) load(now time.Time, busy int) health.Load {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch n := len(t.told); {
	case n == 0:
	case t.rows > t.told[n-1].rows:
		t.rowAt = now.UTC()
	case busy == 0: // idle: how fast it is counts from when it has work again
		t.told = t.told[:0]
	}
	if t.said {
		t.said, t.saidAt = false, now
	}
	if busy == 0 && now.Sub(t.saidAt) > awayLasts { // nobody asks any more: it may be back
		t.away = nil
	}
	switch {
	case t.away == nil:
		t.awayAt = time.Time{}
	case t.awayAt.IsZero():
		t.awayAt = now.UTC()
	}
	t.tell(told{now, t.rows, t.tokens})
	l := health.Load{InFlight: busy, Rows: t.rows, Tokens: t.tokens, RowAt: t.rowAt, MedianMS: t.median().Milliseconds(),
		Faults: t.faults, LastFault: t.fault, UnavailableReason: why(t.away), UnavailableSince: t.awayAt}
	if first := t.told[0]; now.After(first.at) {
		seconds := now.Sub(first.at).Seconds()
		l.Rate, l.TokenRate = float64(t.rows-first.rows)/seconds, float64(t.tokens-first.tokens)/seconds
	}
	return l
}

// tell keeps what is told now, and forgets what is out of the rate's span.
func (t *stats) tell(now told) {
	old := 0
	for old < len(t.told) && (now.at.Sub(t.told[old].at) > rateSpan || now.at.Before(t.told[old].at) || len(t.told)-old >= maxTold) {
		old++
	}
	t.told = append(slices.Delete(t.told, 0, old), now)
}

func (t *stats) median() time.Duration {
	n := min(t.answers, tookKept)
	if n == 0 {
		return 0
	}
	took := slices.Clone(t.took[:n])
	slices.Sort(took)
	return took[n/2]
}

// times are how long the last requests took that were answered.
func (t *stats) times() []time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.took[:min(t.answers, tookKept)])
}

// why is an error as short as a heartbeat can carry it: the innermost cause is
// what tells most.
func why(err error) string {
	if err == nil {
		return ""
	}
	text := err.Error()
	for inner := errors.Unwrap(err); len(text) > awayLength && inner != nil; inner = errors.Unwrap(inner) {
		text = inner.Error()
	}
	return Truncate(text)
}

// Truncate cuts a text to what a heartbeat can carry.
func Truncate(s string) string {
	return text.Truncate(strings.ToValidUTF8(s, ""), awayLength, "")
}
