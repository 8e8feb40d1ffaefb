package cloudrun

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/time/rate"

	"rollout/shared/fault"
	"rollout/shared/queue"
)

// steps records the batches of a collector. A step takes a while, and leaves out the
// messages whose body is "no".
type steps struct {
	takes   time.Duration
	mu      sync.Mutex
	batches [][]string
	at      []time.Duration
	began   time.Time
	running int
	overlap bool
}

func (s *steps) handle(_ context.Context, ms []queue.Message) (done []string) {
	s.mu.Lock()
	s.running++
	s.overlap = s.overlap || s.running > 1
	var bodies []string
	for _, m := range ms {
		bodies = append(bodies, string(m.Body))
		if string(m.Body) != "no" {
			done = append(done, m.Receipt)
		}
	}
	slices.Sort(bodies)
	s.batches, s.at = append(s.batches, bodies), append(s.at, time.Since(s.began))
	s.mu.Unlock()
	time.Sleep(s.takes) // the bubble's clock
	s.mu.Lock()
	s.running--
	s.mu.Unlock()
	return done
}

// collect runs a test of a collector in a bubble.
func collect(t *testing.T, o CollectorOptions, takes time.Duration, body func(t *testing.T, c *Collector, s *steps)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		s := &steps{takes: takes, began: time.Now()}
		body(t, Collect(ctx, o, s.handle), s)
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.overlap {
			t.Error("two steps ran at once")
		}
	})
}

// Few pushes are a step each. Those that follow wait for their turn, and share a step.
func TestPushesThatComeTooFastShareAStep(t *testing.T) {
	t.Parallel()
	collect(t, CollectorOptions{}, 0, func(t *testing.T, c *Collector, s *steps) {
		var all sync.WaitGroup
		for i := range 6 {
			all.Go(func() {
				time.Sleep(time.Duration(i) * 250 * time.Millisecond)
				if err := c.Handle(t.Context(), Push{ID: "m", Data: []byte(fmt.Sprint(i))}); err != nil {
					t.Errorf("push %d: %v", i, err)
				}
			})
		}
		all.Wait()
		if want := "[[0] [1] [2] [3 4 5]] [0s 250ms 500ms 1.6s]"; fmt.Sprint(s.batches, " ", s.at) != want {
			t.Errorf("the steps are %v at %v, want %s", s.batches, s.at, want)
		}
	})
}

// A document takes a write a second: so many steps there are at most, however many pushes come.
func TestStepsAreAtMostOneASecond(t *testing.T) {
	t.Parallel()
	collect(t, CollectorOptions{}, 50*time.Millisecond, func(t *testing.T, c *Collector, s *steps) {
		var all sync.WaitGroup
		for i := range 1000 {
			all.Go(func() {
				time.Sleep(time.Duration(i) * 30 * time.Millisecond)
				if err := c.Handle(t.Context(), Push{ID: "m", Data: []byte("x")}); err != nil {
					t.Errorf("push %d: %v", i, err)
				}
			})
		}
		all.Wait()
		for i, first := range s.at {
			if i+10 < len(s.at) && s.at[i+10] < first+10*time.Second {
				t.Errorf("the steps at %v are more than ten in ten seconds", s.at[i:i+11])
			}
		}
		if len(s.at) < 20 {
			t.Errorf("there are %d steps in 30 s: pushes wait for too long", len(s.at))
		}
	})
}

// Pushes with pauses between them do not wait: the instance would be paid for meanwhile.
func TestPushAfterAPauseDoesNotWait(t *testing.T) {
	t.Parallel()
	collect(t, CollectorOptions{}, 0, func(t *testing.T, c *Collector, s *steps) {
		for i := range 3 {
			if err := c.Handle(t.Context(), Push{Data: []byte(fmt.Sprint(i))}); err != nil {
				t.Error(err)
			}
			time.Sleep(5 * time.Second)
		}
		if want := "[[0] [1] [2]] [0s 5s 10s]"; fmt.Sprint(s.batches, " ", s.at) != want {
			t.Errorf("the steps are %v at %v, want %s", s.batches, s.at, want)
		}
	})
}

func TestFullBatchDoesNotWait(t *testing.T) {
	t.Parallel()
	o := CollectorOptions{Most: 3, Steps: rate.NewLimiter(rate.Every(time.Second), 1)}
	collect(t, o, 0, func(t *testing.T, c *Collector, s *steps) {
		_ = c.Handle(t.Context(), Push{Data: []byte("first")})
		var all sync.WaitGroup
		for range 7 {
			all.Go(func() { _ = c.Handle(t.Context(), Push{Data: []byte("x")}) })
		}
		all.Wait()
		if want := "[[first] [x x x] [x x x] [x]] [0s 0s 0s 1s]"; fmt.Sprint(s.batches, " ", s.at) != want {
			t.Errorf("the steps are %v at %v, want %s", s.batches, s.at, want)
		}
	})
}

func TestEachPushGetsItsOwnResult(t *testing.T) {
	t.Parallel()
	collect(t, CollectorOptions{}, 0, func(t *testing.T, c *Collector, _ *steps) {
		var all sync.WaitGroup
		for _, body := range []string{"yes", "no", "yes"} {
			all.Go(func() {
				err := c.Handle(t.Context(), Push{ID: "same", Data: []byte(body)})
				if (body == "no") != fault.Is(err, fault.Unavailable) || (body == "yes") != (err == nil) {
					t.Errorf("the push of %q got %v", body, err)
				}
			})
		}
		all.Wait()
	})
}

// Pushes that arrive during a step are one batch.
func TestStepsFollowOneAnother(t *testing.T) {
	t.Parallel()
	collect(t, CollectorOptions{}, 10*time.Second, func(t *testing.T, c *Collector, s *steps) {
		var all sync.WaitGroup
		for i := range 4 {
			all.Go(func() {
				time.Sleep(time.Duration(i) * 2 * time.Second)
				if err := c.Handle(t.Context(), Push{Data: []byte(fmt.Sprint(i))}); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		if want := "[[0] [1 2 3]] [0s 10s]"; fmt.Sprint(s.batches, " ", s.at) != want {
			t.Errorf("the steps are %v at %v, want %s", s.batches, s.at, want)
		}
	})
}

func TestPushThatMayNotWaitLongerIsHandedBack(t *testing.T) {
	t.Parallel()
	collect(t, CollectorOptions{}, 10*time.Second, func(t *testing.T, c *Collector, _ *steps) {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		if err := c.Handle(ctx, Push{Data: []byte("x")}); !fault.Is(err, fault.Canceled) {
			t.Errorf("during its step: %v", err)
		}
		if err := c.Handle(ctx, Push{Data: []byte("y")}); !fault.Is(err, fault.Canceled) {
			t.Errorf("before its step: %v", err)
		}
		time.Sleep(20 * time.Second) // the step ends, and its push has been given up
	})
}
