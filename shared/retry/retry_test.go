package retry_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"rollout/shared/fault"
	"rollout/shared/retry"
)

func TestDo(t *testing.T) {
	t.Parallel()
	down := fault.New(fault.Unavailable, "down")
	hinted := &fault.Error{Kind: fault.Throttled, RetryAfter: time.Minute}
	refused := fault.New(fault.Denied, "refused")
	for _, c := range []struct {
		name   string
		policy retry.Policy
		errs   []error // of the tries, in order
		want   error
		waited time.Duration
	}{
		{"success is not retried", retry.Policy{}, []error{nil}, nil, 0},
		{"denial is not retried", retry.Policy{}, []error{refused}, refused, 0},
		{"waits double", retry.Policy{Base: time.Second}, []error{down, down, down, nil}, nil, 7 * time.Second},
		{"waits are bounded", retry.Policy{Base: time.Second, Max: 3 * time.Second},
			[]error{down, down, down, down, nil}, nil, 9 * time.Second},
		{"last error is returned", retry.Policy{Tries: 2, Base: time.Second}, []error{down, hinted}, hinted, time.Second},
		{"hint is followed", retry.Policy{Base: time.Second}, []error{hinted, nil}, nil, time.Minute},
		{"denial ends the tries", retry.Policy{Base: time.Second}, []error{down, refused}, refused, time.Second},
		{"many tries", retry.Policy{Tries: 70, Base: time.Second, Max: time.Second},
			slices.Repeat([]error{down}, 70), down, 69 * time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c.policy.Rand = func() float64 { return 0 } // the longest wait
				began, calls := time.Now(), 0
				err := c.policy.Do(t.Context(), func(try int) error {
					if try != calls {
						t.Errorf("call %d got the number %d", calls, try)
					}
					calls++
					return c.errs[try]
				})
				if err != c.want || calls != len(c.errs) || time.Since(began) != c.waited {
					t.Errorf("got %v after %d calls and %v, want %v after %d and %v",
						err, calls, time.Since(began), c.want, len(c.errs), c.waited)
				}
			})
		})
	}
}

func TestDoEndsWithItsContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() {
			p := retry.Policy{Base: time.Hour, Max: time.Hour}
			ended <- p.Do(ctx, func(int) error { return fault.New(fault.Unavailable, "down") })
		}()
		synctest.Wait()
		cancel()
		err := <-ended
		if !fault.Is(err, fault.Canceled) || !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "down") {
			t.Errorf("got %v, want canceled with the last error's text", err)
		}
	})
}

func TestWaitsAreJittered(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		p := retry.Policy{Tries: 2, Base: time.Second, Rand: func() float64 { return 0.75 }}
		err := p.Do(t.Context(), func(int) error { return fault.New(fault.Throttled, "slower") })
		if spent := time.Since(began); !fault.Is(err, fault.Throttled) || spent != time.Second/4 {
			t.Errorf("waited %v, want a quarter of the longest wait", spent)
		}
	})
}
