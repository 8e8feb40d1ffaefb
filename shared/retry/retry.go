// Package retry repeats operations that fail with a retriable fault: Throttled or
// Unavailable.
//
// The wrappers around the ports use it, so that drivers do not retry. The caller
// gets the error of the last try. The package does not log.
package retry

import (
	"context"
	"math/rand/v2"
	"time"

	"rollout/shared/fault"
)

// Policy bounds the tries of an operation. The zero value is the default policy.
type Policy struct {
	Tries int            // tries in all; 0: 5
	Base  time.Duration  // the longest wait before the second try, doubled for each further one; 0: 50 ms
	Max   time.Duration  // the longest wait of all; 0: 5 s
	Rand  func() float64 // uniform in [0, 1); nil: math/rand/v2
}

// Do calls f until it succeeds, fails with a fault that is not retriable, the tries
// are used up, or ctx ends. f gets the number of the try, from 0. The wait before
// try n is uniform in (0, Base × 2ⁿ⁻¹] and at most Max, but at least the hint of
// the error (fault.RetryAfter). If ctx ends during a wait, the error is Canceled
// and contains the text of the last try's error.
func (p Policy) Do(ctx context.Context, f func(try int) error) error {
	p = p.withDefaults()
	for try := 0; ; try++ {
		err := f(try)
		if err == nil || !fault.Retriable(err) || try+1 >= p.Tries {
			return err
		}
		timer := time.NewTimer(p.wait(try, err))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return fault.WithKind(fault.Canceled, context.Cause(ctx), "gave up after try %d (%v)", try+1, err)
		}
	}
}

// MaxTries returns the number of tries in all.
func (p Policy) MaxTries() int { return p.withDefaults().Tries }

func (p Policy) withDefaults() Policy {
	if p.Tries == 0 {
		p.Tries = 5
	}
	if p.Base == 0 {
		p.Base = 50 * time.Millisecond
	}
	if p.Max == 0 {
		p.Max = 5 * time.Second
	}
	if p.Rand == nil {
		p.Rand = rand.Float64
	}
	return p
}

// wait returns how long to wait after a try that failed with err.
func (p Policy) wait(try int, err error) time.Duration {
	longest := p.Max
	if try < 30 {
		longest = min(p.Max, p.Base<<try)
	}
	jittered := time.Duration((1 - p.Rand()) * float64(longest))
	return max(jittered, fault.RetryAfter(err))
}
