package worker

import (
	"errors"
	"strings"
	"testing"
	"time"

	"rollout/shared/core/health"
	"rollout/shared/core/identity"
	"rollout/shared/fault"
)

func TestLoadReportsRecentRates(t *testing.T) {
	t.Parallel()
	start := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	var y stats
	y.load(start, 0, nil, nil)
	for s := 1; s <= 60; s++ { // 2 rows/s of 10 tokens for 40 s, then nothing
		if s <= 40 {
			y.row("r", Tokens{Prompt: 5, Completion: 10})
			y.row("r", Tokens{Prompt: 5, Completion: 10})
			y.request(time.Duration(s)*time.Second, nil)
		}
		l := y.load(start.Add(time.Duration(s)*time.Second), 7, nil, nil)
		switch s {
		case 40:
			if l.InFlight != 7 || l.Rows != 80 || l.Tokens != 800 || l.Rate != 2 || l.TokenRate != 20 ||
				l.MedianMS != 21_000 || !l.RowAt.Equal(start.Add(40*time.Second)) {
				t.Errorf("after 40 s: %+v", l)
			}
		case 60:
			if l.Rate < 0.6 || l.Rate > 0.7 || !l.RowAt.Equal(start.Add(40*time.Second)) {
				t.Errorf("20 s without a row: %+v", l)
			}
		}
	}
}

func TestIdleTimeDoesNotLowerRates(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	var y stats
	for range 20 {
		now = now.Add(time.Second)
		y.load(now, 0, nil, nil)
	}
	for range 10 {
		now = now.Add(time.Second)
		y.row("r", Tokens{Completion: 3})
		if l := y.load(now, 1, nil, nil); l.Rate != 1 || l.TokenRate != 3 {
			t.Fatalf("%+v", l)
		}
	}
}

// Between two requests a worker of a limited pool has none in flight for most of the
// time.
func TestRatesSpanTheWaitsForALimit(t *testing.T) {
	t.Parallel()
	var y stats
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	limit := &health.Limit{Requests: 60, Waiting: 9}
	y.load(now, 0, limit, nil)
	for beat := range 20 { // one answer in two beats
		if beat%2 == 1 {
			y.row("r", Tokens{Completion: 3})
		}
		now = now.Add(500 * time.Millisecond)
		if l := y.load(now, 0, limit, nil); beat > 8 && (l.Rate < 0.8 || l.Rate > 1.2) || l.Limit != limit {
			t.Errorf("beat %d: %+v, want about 1 row a second", beat, l)
		}
	}
}

func TestLoadReportsSinceWhenEngineIsDown(t *testing.T) {
	t.Parallel()
	start := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	down := fault.New(fault.Unavailable, "connection refused")
	for name, c := range map[string]struct {
		then func(*stats)
		down bool
	}{
		"not ready again":       {func(y *stats) { y.ready(down) }, true},
		"another request fails": {func(y *stats) { y.request(time.Second, down) }, true},
		"ready":                 {func(y *stats) { y.ready(nil) }, false},
		"a request is answered": {func(y *stats) { y.request(time.Second, nil) }, false},
		"a fault of the item":   {func(y *stats) { y.request(time.Second, fault.New(fault.Invalid, "400")) }, true},
	} {
		var y stats
		y.request(time.Second, down)
		y.load(start, 0, nil, nil)
		c.then(&y)
		l := y.load(start.Add(time.Second), 0, nil, nil)
		reason, since := "", time.Time{}
		if c.down {
			reason, since = "connection refused", start
		}
		if l.UnavailableReason != reason || !l.UnavailableSince.Equal(since) {
			t.Errorf("%s: %+v", name, l)
		}
	}
}

func TestIdleWorkerStopsReportingOldOutage(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	var y stats
	y.ready(fault.New(fault.Unavailable, "connection refused"))
	for _, c := range []struct {
		after time.Duration
		busy  int
		down  bool
	}{{0, 1, true}, {time.Minute, 1, true}, {0, 0, false}} {
		now = now.Add(c.after)
		if l := y.load(now, c.busy, nil, nil); (l.UnavailableReason != "") != c.down {
			t.Errorf("with %d requests in flight: %+v", c.busy, l)
		}
	}
	for range 20 { // it keeps asking
		now = now.Add(2 * time.Second)
		y.ready(fault.New(fault.Unavailable, "connection refused"))
		if l := y.load(now, 0, nil, nil); l.UnavailableReason == "" {
			t.Fatalf("%+v", l)
		}
	}
}

func TestLoadCountsFaultsOfEngineAndNotOfItems(t *testing.T) {
	t.Parallel()
	var y stats
	for _, k := range []fault.Kind{fault.Throttled, fault.Invalid, fault.Canceled, fault.Corrupt} {
		y.request(time.Second, &fault.Error{Kind: k, Class: map[fault.Kind]fault.Class{fault.Corrupt: fault.Timeout}[k]})
	}
	if l := y.load(time.Now(), 0, nil, nil); l.Faults != 2 || l.LastFault != "timeout" {
		t.Errorf("%+v", l)
	}
}

func TestLoadIsBounded(t *testing.T) {
	t.Parallel()
	var y stats
	y.ready(fault.Wrap(errors.New(strings.Repeat("x", 10_000)), "ask"))
	now := time.Now()
	for range 10_000 {
		y.request(time.Second, nil)
		y.ready(errors.New(strings.Repeat("x", 10_000)))
		now = now.Add(time.Millisecond)
		if l := y.load(now, 0, nil, nil); len(l.UnavailableReason) > maxReason || len(y.total.readings) > maxReadings {
			t.Fatalf("%d bytes, %d readings", len(l.UnavailableReason), len(y.total.readings))
		}
	}
}

// Two runs share a worker that holds many shards of the one and a single shard of the
// other, which gets most requests.
func TestLoadTellsTheRatesOfEachRun(t *testing.T) {
	t.Parallel()
	const many, few = identity.RunID("a"), identity.RunID("b")
	start := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	var y stats
	held := map[identity.RunID]int{many: 64}
	y.load(start, 64, nil, held)
	at := func(s int) time.Time { return start.Add(time.Duration(s) * time.Second) }
	for s := 1; s <= 40; s++ { // 10 rows/s; from 20 s on 9 of them are of the other run
		own := 10
		if s > 20 {
			held = map[identity.RunID]int{many: 6, few: 58}
			own = 1
			for range 9 {
				y.row(few, Tokens{Completion: 3})
			}
		}
		for range own {
			y.row(many, Tokens{Completion: 2})
		}
		l := y.load(at(s), 64, nil, held)
		a, _ := l.Of(many)
		b, known := l.Of(few)
		switch s {
		case 20:
			if a.Rate != 10 || a.TokenRate != 20 || known {
				t.Errorf("alone: %+v, the other %+v", a, b)
			}
		case 22: // the first row of the other run comes before its first heartbeat
			if b.Rate != 9 || b.TokenRate != 27 || b.InFlight != 58 || !b.RowAt.Equal(at(22)) {
				t.Errorf("after 2 s the other run has %+v", b)
			}
		case 40:
			if a.Rate < 3.9 || a.Rate > 4.1 || a.InFlight != 6 || b.Rate != 9 || l.Rate != 10 {
				t.Errorf("after 20 s of sharing: %+v and %+v of %v rows/s", a, b, l.Rate)
			}
		}
	}
	for s := 41; s <= 80; s++ { // the other run has ended
		y.load(at(s), 64, nil, map[identity.RunID]int{many: 64})
	}
	if _, ok := y.runs[few]; ok || len(y.runs) != 1 {
		t.Errorf("%d runs are remembered", len(y.runs))
	}
}

// The rate of a run that waits for its first request counts from that request on.
func TestRateOfARunCountsFromItsFirstRequest(t *testing.T) {
	t.Parallel()
	const id = identity.RunID("a")
	var y stats
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for s := range 40 { // 20 s without a request, then answers of 10 s each
		now = now.Add(time.Second)
		requests := 0
		if s >= 20 {
			requests = 8
		}
		if s >= 30 {
			y.row(id, Tokens{})
		}
		y.load(now, 64, nil, map[identity.RunID]int{id: requests})
	}
	l, _ := y.load(now, 64, nil, map[identity.RunID]int{id: 8}).Of(id)
	if l.Rate < 0.45 || l.Rate > 0.55 {
		t.Errorf("10 rows in the 20 s since its first request are %v rows/s", l.Rate)
	}
}
