package infer

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"rollout/shared/fault"
)

// step is what happens to a request after a wait.
type step struct {
	wait time.Duration
	do   string // "begin", "sign", "end"
	over bool   // the request's context has ended by then
}

func TestWatchEndsTheRequestUnderWayAndNoOther(t *testing.T) {
	t.Parallel()
	const second = time.Second
	for name, c := range map[string]struct {
		limits limits
		steps  []step
	}{
		"silence":             {limits{10 * second, 0}, []step{{0, "begin", false}, {9 * second, "", false}, {second, "", true}}},
		"signs":               {limits{10 * second, 0}, []step{{0, "begin", false}, {9 * second, "sign", false}, {9 * second, "sign", false}, {9 * second, "", false}, {second, "", true}}},
		"too long as a whole": {limits{10 * second, 15 * second}, []step{{0, "begin", false}, {9 * second, "sign", false}, {5 * second, "", false}, {second, "", true}}},
		"one after the other": {limits{10 * second, 15 * second}, []step{{0, "begin", false}, {9 * second, "end", false}, {0, "begin", false}, {9 * second, "", false}, {second, "", true}}},
		"a pause between":     {limits{10 * second, 0}, []step{{0, "begin", false}, {second, "end", false}, {time.Hour, "begin", false}, {9 * second, "", false}, {second, "", true}}},
		"a late sign":         {limits{10 * second, 0}, []step{{0, "begin", false}, {second, "end", false}, {second, "sign", false}, {0, "begin", false}, {9 * second, "", false}, {second, "", true}}},
		"after an ended one":  {limits{10 * second, 0}, []step{{0, "begin", false}, {10 * second, "end", true}, {0, "begin", false}, {9 * second, "", false}, {second, "", true}}},
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
					switch s.do {
					case "begin":
						ctx = w.begin(t.Context(), c.limits)
					case "sign":
						w.sign()
					case "end":
						w.end()
					}
					if over := fault.ClassOf(context.Cause(ctx)) == fault.Timeout; over != s.over {
						t.Errorf("step %d: over: %v, %v", i, over, context.Cause(ctx))
					}
				}
			})
		})
	}
}

func TestWatchUsesItsContextAgain(t *testing.T) {
	t.Parallel()
	w := newWatchdog()
	one := w.begin(t.Context(), limits{silence: time.Hour})
	w.end()
	two := w.begin(t.Context(), limits{silence: time.Hour})
	w.end()
	if one != two {
		t.Error("the second request has a context of its own")
	}
	other, cancel := context.WithCancel(t.Context())
	three := w.begin(other, limits{silence: time.Hour})
	cancel()
	if three.Err() == nil || one.Err() == nil {
		t.Error("a request outlives the context it was begun in, or its watch's")
	}
	w.close()
	if four := w.begin(t.Context(), limits{silence: time.Hour}); four.Err() != nil {
		t.Error("a closed watch is of no more use")
	}
	w.close()
}
