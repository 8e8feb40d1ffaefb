package infer

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"rollout/shared/fault"
)

// step is an action on the watchdog after a wait.
type step struct {
	wait      time.Duration
	action    string // "begin", "progress", "end"
	cancelled bool   // the request's context has ended by then
}

func TestWatchdogCancelsRequestAtItsLimits(t *testing.T) {
	t.Parallel()
	const second = time.Second
	for name, c := range map[string]struct {
		limits limits
		steps  []step
	}{
		"no progress": {limits{10 * second, 0}, []step{
			{0, "begin", false}, {9 * second, "", false}, {second, "", true}}},
		"progress": {limits{10 * second, 0}, []step{
			{0, "begin", false}, {9 * second, "progress", false}, {9 * second, "progress", false},
			{9 * second, "", false}, {second, "", true}}},
		"too long as a whole": {limits{10 * second, 15 * second}, []step{
			{0, "begin", false}, {9 * second, "progress", false}, {5 * second, "", false}, {second, "", true}}},
		"two requests": {limits{10 * second, 15 * second}, []step{
			{0, "begin", false}, {9 * second, "end", false}, {0, "begin", false}, {9 * second, "", false}, {second, "", true}}},
		"pause between requests": {limits{10 * second, 0}, []step{
			{0, "begin", false}, {second, "end", false}, {time.Hour, "begin", false},
			{9 * second, "", false}, {second, "", true}}},
		"progress after the end": {limits{10 * second, 0}, []step{
			{0, "begin", false}, {second, "end", false}, {second, "progress", false}, {0, "begin", false},
			{9 * second, "", false}, {second, "", true}}},
		"request after a cancelled one": {limits{10 * second, 0}, []step{
			{0, "begin", false}, {10 * second, "end", true}, {0, "begin", false}, {9 * second, "", false}, {second, "", true}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newWatchdog()
				defer w.close()
				ctx := t.Context()
				for i, s := range c.steps {
					<-time.After(s.wait)
					synctest.Wait()
					switch s.action {
					case "begin":
						ctx = w.begin(t.Context(), c.limits)
					case "progress":
						w.progress()
					case "end":
						w.end()
					}
					if got := fault.ClassOf(context.Cause(ctx)) == fault.Timeout; got != s.cancelled {
						t.Errorf("step %d: cancelled: %v, %v", i, got, context.Cause(ctx))
					}
				}
			})
		})
	}
}

func TestWatchdogReusesItsContext(t *testing.T) {
	t.Parallel()
	w := newWatchdog()
	one := w.begin(t.Context(), limits{silence: time.Hour})
	w.end()
	two := w.begin(t.Context(), limits{silence: time.Hour})
	w.end()
	if one != two {
		t.Error("the second request has another context")
	}
	other, cancel := context.WithCancel(t.Context())
	three := w.begin(other, limits{silence: time.Hour})
	cancel()
	if three.Err() == nil || one.Err() == nil {
		t.Error("a request outlives its parent context, or the watchdog's renewed one")
	}
	w.close()
	if four := w.begin(t.Context(), limits{silence: time.Hour}); four.Err() != nil {
		t.Error("a closed watchdog can't be used again")
	}
	w.close()
}
