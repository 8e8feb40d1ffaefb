package balancer_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"rollout/gpuworker/engine"
	"rollout/gpuworker/engine/balancer"
	"rollout/shared/fault"
)

// wholeFixture is a balancer over one server, whose callers give up after 2 minutes of
// silence, as the executor does.
type wholeFixture struct {
	*fake
	t        *testing.T
	balancer *balancer.Balancer
}

func wholeBubble(t *testing.T, stream balancer.Stream, counts bool, test func(f *wholeFixture)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := newFake("a")
		s.noMetrics, s.counts, s.takes = !counts, counts, time.Second
		f := &wholeFixture{s, t, balancer.New(balancer.Config{Servers: []balancer.Backend{{Name: "a", Server: s}},
			InFlight: 64, Stream: stream, Silence: 2 * time.Minute})}
		defer f.balancer.Close()
		if _, err := f.balancer.Ready(t.Context()); err != nil {
			t.Fatal(err)
		}
		test(f)
	})
}

// asked is a request's outcome.
type asked struct {
	took time.Duration
	err  error
}

// ask asks for an answer of at most so many tokens, and cancels it after 2 minutes of
// silence.
func (f *wholeFixture) ask(maxTokens int64) asked {
	ctx, cancel := context.WithCancelCause(f.t.Context())
	defer cancel(nil)
	began := time.Now()
	var last atomic.Int64
	go func() {
		for ctx.Err() == nil {
			silent := time.Since(began) - time.Duration(last.Load())
			if silent >= 2*time.Minute {
				cancel(&fault.Error{Kind: fault.Corrupt, Class: fault.Timeout, Err: engine.ErrSilent})
				return
			}
			sleep(ctx, 2*time.Minute-silent)
		}
	}()
	r := engine.Request{Endpoint: engine.Chat, Body: []byte("x"), Model: "m", MaxTokens: maxTokens}
	_, err := f.balancer.Answer(ctx, r, func() { last.Store(int64(time.Since(began))) })
	return asked{time.Since(began), err}
}

// sleep waits for d. It returns false if ctx ended first.
func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}

func (f *wholeFixture) wholeRequests() (n int) {
	f.set(func() { n = f.wholes })
	return n
}

// generates lets the server generate a token a second, until stop is called.
func (f *wholeFixture) generates() (stop func()) {
	ctx, cancel := context.WithCancel(f.t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for sleep(ctx, time.Second) {
			f.set(func() { f.tokens++ })
		}
	}()
	return func() { cancel(); <-done }
}

func TestWhichRequestsTheBalancerStreams(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		stream    balancer.Stream
		counts    bool
		maxTokens int64
		want      int // of 12 requests, one after the other
	}{
		"counters":                    {balancer.Auto, true, 100, 12},
		"counters, no max_tokens":     {balancer.Auto, true, 0, 0},
		"counters, always":            {balancer.Always, true, 100, 0},
		"no counters":                 {balancer.Auto, false, 100, 4},
		"no counters, no max_tokens":  {balancer.Auto, false, 0, 0},
		"no counters, never":          {balancer.Never, false, 100, 12},
		"neither, never, as you like": {balancer.Never, false, 0, 12},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			wholeBubble(t, c.stream, c.counts, func(f *wholeFixture) {
				for range 12 {
					if a := f.ask(c.maxTokens); a.err != nil {
						t.Fatal(a.err)
					}
				}
				if got := f.wholeRequests(); got != c.want {
					t.Errorf("%d requests are whole, want %d", got, c.want)
				}
			})
		})
	}
}

func TestWholeAnswerOfTenMinutesIsAwaitedWhileTokensGrow(t *testing.T) {
	t.Parallel()
	wholeBubble(t, balancer.Auto, true, func(f *wholeFixture) {
		f.set(func() { f.takes = 10 * time.Minute })
		defer f.generates()()
		if a := f.ask(1000); a.err != nil || a.took != 10*time.Minute || f.wholeRequests() != 1 {
			t.Errorf("%+v, %d whole requests", a, f.wholeRequests())
		}
	})
}

// A server whose counters stand still is found as fast as one whose streams are silent.
func TestHungServerIsFoundByItsCounters(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		lives   bool // it answers the balancer's question
		atFault bool
	}{"it hangs": {false, true}, "it lives, and lost the request": {true, false}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			wholeBubble(t, balancer.Auto, true, func(f *wholeFixture) {
				f.set(func() { f.takes = 1000 * time.Hour })
				stop := f.generates()
				time.AfterFunc(time.Minute, func() { stop(); f.set(func() { f.hangs = !c.lives }) })
				time.AfterFunc(2*time.Minute, func() { f.set(func() { f.takes = time.Second }) })
				a := f.ask(1000)
				if a.took < 3*time.Minute-2*time.Second || a.took > 3*time.Minute+2*time.Second {
					t.Errorf("found after %s, want 2 minutes after the last token", a.took)
				}
				var hang *engine.HangError
				if !errors.As(a.err, &hang) || !hang.Whole || hang.ServerAtFault(f.t.Context()) != c.atFault {
					t.Errorf("the fault is %v", a.err)
				}
				if u := engine.UsageOf(a.err); u.CompletionTokens < 55 || u.CompletionTokens > 62 || !u.Unknown {
					t.Errorf("its cost is %+v, want an estimate of 60 tokens", u)
				}
			})
		})
	}
}

// Without counters, a request that takes longer than the longest answer may at the pace
// of earlier ones is found to hang.
func TestHungServerIsFoundByThePace(t *testing.T) {
	t.Parallel()
	wholeBubble(t, balancer.Auto, false, func(f *wholeFixture) {
		f.set(func() { f.takes = 10 * time.Second }) // half a second a token
		for range 8 {
			if a := f.ask(1000); a.err != nil {
				t.Fatal(a.err)
			}
		}
		f.set(func() { f.takes = 20 * time.Minute })
		if a := f.ask(1000); a.err != nil || a.took != 20*time.Minute {
			t.Errorf("a slow answer: %+v", a)
		}
		f.set(func() { f.hangs = true })
		a := f.ask(1000)
		if a.err == nil || a.took < 25*time.Minute-2*time.Second || a.took > 61*time.Minute {
			t.Errorf("found after %s", a.took)
		}
		if u := engine.UsageOf(a.err); u.CompletionTokens != 1000 || !u.Unknown {
			t.Errorf("its cost is %+v, want an estimate of 1000 tokens", u)
		}
	})
}

// A proxy that gives up after a minute cuts whole answers: they are to be asked again as
// streams, and after the second cut at that age all are.
func TestAnswersThatAreCutOffAtOneAgeAreStreamed(t *testing.T) {
	t.Parallel()
	wholeBubble(t, balancer.Auto, true, func(f *wholeFixture) {
		defer f.generates()()
		f.set(func() { f.takes, f.cutAfter = 90*time.Second, time.Minute })
		for range 2 {
			a := f.ask(1000)
			var whole *engine.WholeError
			if !errors.As(a.err, &whole) {
				t.Fatalf("the fault is %v", a.err)
			}
			f.set(func() { f.sign = time.Second })
		}
		if a := f.ask(1000); a.err != nil || a.took != 90*time.Second || f.wholeRequests() != 2 {
			t.Errorf("%+v, %d whole requests", a, f.wholeRequests())
		}
	})
}

// Counters are read once for all requests in flight, and not while nothing is.
func TestCountersAreReadOnceForAllRequests(t *testing.T) {
	t.Parallel()
	wholeBubble(t, balancer.Auto, true, func(f *wholeFixture) {
		calls := func() (n int) { f.set(func() { n = f.metricsCalls }); return n }
		f.set(func() { f.takes = time.Minute })
		before := calls()
		done := make(chan asked, 64)
		for range 64 {
			go func() { done <- f.ask(1000) }()
		}
		for range 64 {
			if a := <-done; a.err != nil {
				t.Error(a.err)
			}
		}
		if n := calls() - before; n > 61 {
			t.Errorf("the metrics are read %d times in a minute", n)
		}
		before = calls()
		time.Sleep(time.Hour)
		if n := calls() - before; n > 1 { // one may have been due at the end of the minute
			t.Errorf("the metrics of an idle server are read %d times", n)
		}
	})
}

// A server that reported nothing at its start may begin to report with its first
// request. One that never does is asked ever more seldom.
func TestServerWithoutCountersIsAskedAgainSeldom(t *testing.T) {
	t.Parallel()
	for name, begins := range map[string]bool{"it begins": true, "it never does": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			wholeBubble(t, balancer.Auto, false, func(f *wholeFixture) {
				f.set(func() { f.metricsCalls = 0 })
				if begins {
					f.set(func() { f.noMetrics, f.counts = false, true })
				}
				for range 3600 { // no max_tokens: they stay streams
					if a := f.ask(0); a.err != nil {
						t.Fatal(a.err)
					}
				}
				calls := 0
				f.set(func() { calls = f.metricsCalls })
				if !begins && calls > 16 {
					t.Errorf("it is asked %d times in an hour", calls)
				}
				f.ask(100)
				f.set(func() { f.wholes = 0 })
				f.ask(100)
				if f.wholeRequests() != 1 { // by its counters, or by the pace
					t.Error("the last request is not whole")
				}
			})
		})
	}
}
