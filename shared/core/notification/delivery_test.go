package notification_test

import (
	"testing"
	"time"

	"rollout/shared/core/notification"
)

func fail(d notification.Delivery, now time.Time) notification.Delivery {
	return d.Failed(notification.Failure{Sequence: d.Sequence + 1, Problem: "it answered 503"}, now)
}

func TestPausesDoubleUpToHalfAnHour(t *testing.T) {
	t.Parallel()
	var d notification.Delivery
	now := noon
	for _, want := range []time.Duration{5, 10, 20, 40, 80, 160, 320, 640, 1280, 1800, 1800} {
		d = fail(d, now)
		if got := d.NextAt(now).Sub(now); got != want*time.Second {
			t.Errorf("after %d failures it waits %s, want %s", d.Attempts, got, want*time.Second)
		}
		if d.Due(now) || !d.Due(d.RetryAt) {
			t.Errorf("after %d failures it is due at the wrong time", d.Attempts)
		}
		now = d.RetryAt
	}
}

func TestRetryAfterOfTheReceiverIsKeptWithinHalfAnHour(t *testing.T) {
	t.Parallel()
	for hint, want := range map[time.Duration]time.Duration{
		time.Second: 5 * time.Second, time.Minute: time.Minute, 24 * time.Hour: 30 * time.Minute,
	} {
		d := notification.Delivery{}.Failed(notification.Failure{Sequence: 1, RetryAfter: hint}, noon)
		if got := d.RetryAt.Sub(noon); got != want {
			t.Errorf("asked to wait %s it waits %s, want %s", hint, got, want)
		}
	}
}

func TestAnEventIsGivenUpAfterADay(t *testing.T) {
	t.Parallel()
	d, now := notification.Delivery{Sequence: 4}, noon
	for d.Sequence == 4 {
		if now.Sub(noon) > 25*time.Hour {
			t.Fatalf("it is tried for longer than a day: %+v", d)
		}
		d = fail(d, now)
		if d.Sequence == 4 {
			now = d.RetryAt
		}
	}
	if now.Sub(noon) < 24*time.Hour || d.Sequence != 5 || d.GivenUp != 1 || d.Problem != "it answered 503" || !d.Due(now) {
		t.Errorf("given up after %s: %+v", now.Sub(noon), d)
	}
	if d = d.Delivered(6); d.GivenUp != 1 || d.Problem == "" {
		t.Errorf("the event that was given up is forgotten: %+v", d)
	}
}

// An installation that was off for days has not tried its events for a day.
func TestFewAttemptsGiveNothingUp(t *testing.T) {
	t.Parallel()
	d := fail(notification.Delivery{}, noon)
	if d = fail(d, noon.Add(72*time.Hour)); d.Sequence != 0 || d.GivenUp != 0 {
		t.Errorf("given up after two attempts: %+v", d)
	}
}

func TestARefusalForGoodGivesUpAtOnce(t *testing.T) {
	t.Parallel()
	d := notification.Delivery{}.Failed(notification.Failure{Sequence: 1, Problem: "410", Final: true}, noon)
	if d.Sequence != 1 || d.GivenUp != 1 || !d.Due(noon) {
		t.Errorf("%+v", d)
	}
}

func TestAClaimKeepsOthersAwayUntilItLapses(t *testing.T) {
	t.Parallel()
	d := notification.Delivery{}.Claim(noon, 30*time.Second)
	if d.Due(noon.Add(29*time.Second)) || !d.Due(noon.Add(30*time.Second)) {
		t.Errorf("the claim does not last 30 s: %+v", d)
	}
	if !d.Delivered(1).Due(noon) || !d.Delivered(0).Due(noon) {
		t.Error("the claim stays after the delivery")
	}
}

func TestReportsOfALapsedClaimChangeNothing(t *testing.T) {
	t.Parallel()
	d := notification.Delivery{Sequence: 3}
	late := notification.Failure{Sequence: 3, Problem: "no answer"}
	if got := d.Failed(late, noon); got != d {
		t.Errorf("a late failure: %+v", got)
	}
	if got := d.Delivered(2); got != d {
		t.Errorf("a late delivery: %+v", got)
	}
}

func TestAClockThatWasSetBackStopsNothing(t *testing.T) {
	t.Parallel()
	d := fail(notification.Delivery{}, noon.Add(48*time.Hour))
	if !d.Due(noon) {
		t.Errorf("it waits until %s", d.NextAt(noon))
	}
}
