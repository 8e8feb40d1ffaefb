package worker

import (
	"errors"
	"strings"
	"testing"
	"time"

	"rollout/shared/core/health"
	"rollout/shared/fault"
)

func TestLoadReportsRecentRates(t *testing.T) {
	t.Parallel()
	start := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	var y stats
	y.load(start, 0, nil)
	for s := 1; s <= 60; s++ { // 2 rows/s of 10 tokens for 40 s, then nothing
		if s <= 40 {
			y.row(Tokens{Prompt: 5, Completion: 10})
			y.row(Tokens{Prompt: 5, Completion: 10})
			y.request(time.Duration(s)*time.Second, nil)
		}
		l := y.load(start.Add(time.Duration(s)*time.Second), 7, nil)
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
		y.load(now, 0, nil)
	}
	for range 10 {
		now = now.Add(time.Second)
		y.row(Tokens{Completion: 3})
		if l := y.load(now, 1, nil); l.Rate != 1 || l.TokenRate != 3 {
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
	y.load(now, 0, limit)
	for beat := range 20 { // one answer in two beats
		if beat%2 == 1 {
			y.row(Tokens{Completion: 3})
		}
		now = now.Add(500 * time.Millisecond)
		if l := y.load(now, 0, limit); beat > 8 && (l.Rate < 0.8 || l.Rate > 1.2) || l.Limit != limit {
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
		y.load(start, 0, nil)
		c.then(&y)
		l := y.load(start.Add(time.Second), 0, nil)
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
		if l := y.load(now, c.busy, nil); (l.UnavailableReason != "") != c.down {
			t.Errorf("with %d requests in flight: %+v", c.busy, l)
		}
	}
	for range 20 { // it keeps asking
		now = now.Add(2 * time.Second)
		y.ready(fault.New(fault.Unavailable, "connection refused"))
		if l := y.load(now, 0, nil); l.UnavailableReason == "" {
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
	if l := y.load(time.Now(), 0, nil); l.Faults != 2 || l.LastFault != "timeout" {
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
		if l := y.load(now, 0, nil); len(l.UnavailableReason) > maxReason || len(y.readings) > maxReadings {
			t.Fatalf("%d bytes, %d readings", len(l.UnavailableReason), len(y.readings))
		}
	}
}
