package worker

import (
	"errors"
	"strings"
	"testing"
	"time"

	"rollout/shared/fault"
)

func TestABeatTellsWhatTheEngineGaveLately(t *testing.T) {
	t.Parallel()
	start := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	var y stats
	y.load(start, 0)
	for s := 1; s <= 60; s++ { // 2 rows/s of 10 tokens for 40 s, then nothing
		if s <= 40 {
			y.row(Tokens{Prompt: 5, Completion: 10})
			y.row(Tokens{Prompt: 5, Completion: 10})
			y.asked(time.Duration(s)*time.Second, nil)
		}
		l := y.load(start.Add(time.Duration(s)*time.Second), 7)
		switch s {
		case 40:
			if l.InFlight != 7 || l.Rows != 80 || l.Tokens != 800 || l.Rate != 2 || l.TokenRate != 20 || l.MedianMS != 21_000 || !l.RowAt.Equal(start.Add(40*time.Second)) {
				t.Errorf("after 40 s: %+v", l)
			}
		case 60:
			if l.Rate < 0.6 || l.Rate > 0.7 || !l.RowAt.Equal(start.Add(40*time.Second)) {
				t.Errorf("20 s without a row: %+v", l)
			}
		}
	}
}

func TestIdleTimeDoesNotMakeAWorkerSlow(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	var y stats
	for range 20 {
		now = now.Add(time.Second)
		y.load(now, 0)
	}
	for range 10 {
		now = now.Add(time.Second)
		y.row(Tokens{Completion: 3})
		if l := y.load(now, 1); l.Rate != 1 || l.TokenRate != 3 {
			t.Fatalf("%+v", l)
		}
	}
}

func TestABeatSaysSinceWhenTheEngineIsAway(t *testing.T) {
	t.Parallel()
	start := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	away := fault.New(fault.Unavailable, "connection refused")
	for name, c := range map[string]struct {
		then func(*stats)
		away bool
	}{
		"it stays away":           {func(y *stats) { y.ready(away) }, true},
		"another request breaks":  {func(y *stats) { y.asked(time.Second, away) }, true},
		"it says that it is back": {func(y *stats) { y.ready(nil) }, false},
		"it answers":              {func(y *stats) { y.asked(time.Second, nil) }, false},
		"an item's own fault":     {func(y *stats) { y.asked(time.Second, fault.New(fault.Invalid, "400")) }, true},
	} {
		var y stats
		y.asked(time.Second, away)
		y.load(start, 0)
		c.then(&y)
		l := y.load(start.Add(time.Second), 0)
		if c.away && (l.UnavailableReason != "connection refused" || !l.UnavailableSince.Equal(start)) || !c.away && (l.UnavailableReason != "" || !l.UnavailableSince.IsZero()) {
			t.Errorf("%s: %+v", name, l)
		}
	}
}

func TestAnIdleWorkerDoesNotSayForEverThatItsEngineIsAway(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	var y stats
	y.ready(fault.New(fault.Unavailable, "connection refused"))
	for _, c := range []struct {
		after time.Duration
		busy  int
		away  bool
	}{{0, 1, true}, {time.Minute, 1, true}, {0, 0, false}} {
		now = now.Add(c.after)
		if l := y.load(now, c.busy); (l.UnavailableReason != "") != c.away {
			t.Errorf("with %d requests under way: %+v", c.busy, l)
		}
	}
	for range 20 { // it asks again and again
		now = now.Add(2 * time.Second)
		y.ready(fault.New(fault.Unavailable, "connection refused"))
		if l := y.load(now, 0); l.UnavailableReason == "" {
			t.Fatalf("%+v", l)
		}
	}
}

func TestABeatCountsTheEnginesFaultsAndNotTheItems(t *testing.T) {
	t.Parallel()
	var y stats
	for _, k := range []fault.Kind{fault.Throttled, fault.Invalid, fault.Canceled, fault.Corrupt} {
		y.asked(time.Second, &fault.Error{Kind: k, Class: map[fault.Kind]fault.Class{fault.Corrupt: fault.Timeout}[k]})
	}
	if l := y.load(time.Now(), 0); l.Faults != 2 || l.LastFault != "timeout" {
		t.Errorf("%+v", l)
	}
}

func TestAHeartbeatStaysSmall(t *testing.T) {
	t.Parallel()
	var y stats
	y.ready(fault.Wrap(errors.New(strings.Repeat("x", 10_000)), "ask"))
	now := time.Now()
	for range 10_000 {
		y.asked(time.Second, nil)
		y.ready(errors.New(strings.Repeat("x", 10_000)))
		now = now.Add(time.Millisecond)
		if l := y.load(now, 0); len(l.UnavailableReason) > awayLength || len(y.told) > maxTold {
			t.Fatalf("%d bytes, %d beats", len(l.UnavailableReason), len(y.told))
		}
	}
}
