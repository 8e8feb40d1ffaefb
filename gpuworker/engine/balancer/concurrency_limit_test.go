package balancer

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"rollout/gpuworker/engine"
	"rollout/shared/core/ratelimit"
	"rollout/shared/fault"
)

// model is a simulated server.
type model struct {
	slots        int     // it works on so many at once and queues the rest; 0 on all
	cap          int     // it refuses more requests than that; 0: never
	refuses      float64 // share of requests that it refuses at any load
	reportsQueue bool
	time         func(nth, running int) time.Duration // of an answer
	pieces       func(nth int) int                    // of an answer

	nth, running, waiting, peak, done, refused atomic.Int64
	semaphore                                  chan struct{}
}

func (m *model) Answer(ctx context.Context, _ engine.Request, progress func()) (engine.Answer, error) {
	nth := int(m.nth.Add(1))
	if random(nth+1e6) < m.refuses {
		return engine.Answer{}, &fault.Error{Kind: fault.Throttled, Op: "not now"}
	}
	if m.cap > 0 && m.running.Load()+m.waiting.Load() >= int64(m.cap) {
		m.refused.Add(1)
		return engine.Answer{}, &fault.Error{Kind: fault.Throttled, Op: "full"}
	}
	if m.semaphore != nil {
		m.waiting.Add(1)
		m.semaphore <- struct{}{}
		m.waiting.Add(-1)
		defer func() { <-m.semaphore }()
	}
	running := m.running.Add(1)
	defer m.running.Add(-1)
	m.peak.Store(max(m.peak.Load(), running))
	time.Sleep(m.time(nth, int(running)))
	for range m.pieces(nth) {
		progress()
		m.done.Add(1)
	}
	return engine.Answer{}, nil
}

func (m *model) Metrics(context.Context) (engine.ServerMetrics, error) {
	v := engine.UnknownMetrics()
	if m.reportsQueue {
		v.Running, v.Waiting = float64(m.running.Load()), float64(m.waiting.Load())
	}
	return v, nil
}

func (m *model) Ready(context.Context) (string, error) { return "model", nil }
func (m *model) Close() error                          { return nil }

// drive keeps as many requests in flight as the balancer's limit, for a time. It
// returns the pieces a second and the mean limit in the last part of that time.
func drive(f *Balancer, m *model, whole, last time.Duration) (rate, limit float64) {
	var work sync.WaitGroup
	var inFlight atomic.Int64
	end := time.Now().Add(whole)
	var before int64
	var limits []int
	from := end.Add(-last)
	for time.Now().Before(end) {
		if before == 0 && !time.Now().Before(from) {
			before, from = m.done.Load(), time.Now()
		}
		if before > 0 {
			limits = append(limits, f.Limit())
		}
		for inFlight.Load() < int64(f.Limit()) {
			inFlight.Add(1)
			work.Go(func() {
				defer inFlight.Add(-1)
				if _, err := f.Answer(context.Background(), engine.Request{}, func() {}); err != nil {
					time.Sleep(100 * time.Millisecond)
				}
			})
		}
		time.Sleep(5 * time.Millisecond)
	}
	rate = float64(m.done.Load()-before) / time.Since(from).Seconds()
	work.Wait()
	for _, n := range limits {
		limit += float64(n) / float64(len(limits))
	}
	return rate, limit
}

// random returns a number from 0 to 1 that depends on n alone.
func random(n int) float64 {
	x := uint64(n)*0x9e3779b97f4a7c15 + 0x632be59bd9b4e019
	x ^= x >> 29
	x *= 0xbf58476d1ce4e5b9
	x ^= x >> 32
	return float64(x>>11) / (1 << 53)
}

func TestLimitFindsBestGoodput(t *testing.T) {
	t.Parallel()
	constant := func(d time.Duration) func(int, int) time.Duration { return func(int, int) time.Duration { return d } }
	// The metrics of a server are fetched once a second. They must not show the same
	// phase of its work each time.
	about := func(d time.Duration) func(int, int) time.Duration {
		return func(nth, _ int) time.Duration { return time.Duration(float64(d) * (0.9 + 0.2*random(nth))) }
	}
	one := func(int) int { return 10 }
	varied := func(nth int) int { return 1 + int(-40*math.Log(1-random(nth))) } // exponential: most are short
	streamed := func(perPiece time.Duration) func(int, int) time.Duration {
		return func(nth, _ int) time.Duration { return 50*time.Millisecond + time.Duration(varied(nth))*perPiece }
	}
	for _, c := range []struct {
		name  string
		model *model
		best  float64 // pieces a second
		most  float64 // upper bound of the limit in the end; 0: not checked
	}{
		{"40 slots", &model{slots: 40, time: constant(200 * time.Millisecond), pieces: one}, 40 * 10 / 0.2, 0},
		{"16 slots, answers of all lengths", &model{slots: 16, time: streamed(5 * time.Millisecond), pieces: varied}, 0, 0},
		{"200 slots", &model{slots: 200, time: constant(300 * time.Millisecond), pieces: one}, 200 * 10 / 0.3, 0},
		{"300 slots, answers of all lengths", &model{slots: 300, time: streamed(5 * time.Millisecond), pieces: varied}, 0, 0},
		{"100 slots, reports its queue",
			&model{slots: 100, reportsQueue: true, time: about(200 * time.Millisecond), pieces: one}, 100 * 10 / 0.2, 130},
		{"24 slots, reports its queue",
			&model{slots: 24, reportsQueue: true, time: about(200 * time.Millisecond), pieces: one}, 24 * 10 / 0.2, 33},
		{"refuses more than 50", &model{cap: 50, time: constant(200 * time.Millisecond), pieces: one}, 50 * 10 / 0.2, 0},
		{"refuses one of 50 at any load",
			&model{refuses: 0.02, slots: 80, time: constant(200 * time.Millisecond), pieces: one}, 80 * 10 / 0.2, 0},
		// A step of a batch takes longer the larger the batch is. Half of the possible
		// goodput is reached at 64 requests, 80 % at 256.
		{"batches that get slower", &model{time: func(_, n int) time.Duration {
			return time.Duration(64+n) * time.Millisecond
		}, pieces: one},
			512 * 10 / (0.064 + 0.512), 0},
		// Beyond 80 requests goodput falls.
		{"thrashing server", &model{time: func(_, n int) time.Duration {
			return 100*time.Millisecond + time.Duration(max(0, n-80))*8*time.Millisecond
		}, pieces: one}, 80 * 10 / 0.1, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				m := c.model
				if m.slots > 0 {
					m.semaphore = make(chan struct{}, m.slots)
				}
				f := New(Config{Servers: []Backend{{"a", m}}})
				defer f.Close()
				best := c.best
				if best == 0 { // all slots are busy all the time
					mean, busy := 0.0, 0.0
					for n := range 10000 {
						mean += float64(m.pieces(n)) / 10000
						busy += m.time(n, 0).Seconds() / 10000
					}
					best = float64(m.slots) * mean / busy
				}
				got, limit := drive(f, m, 40*time.Second, 15*time.Second)
				t.Logf("limit %.0f: %.0f of %.0f pieces a second", limit, got, best)
				if got < 0.8*best {
					t.Errorf("%.0f pieces a second at a limit of %.0f; the server can do %.0f", got, limit, best)
				}
				if c.most > 0 && limit > c.most {
					t.Errorf("the limit is %.0f, want at most %.0f", limit, c.most)
				}
			})
		})
	}
}

func TestFixedInFlightIsTheLimit(t *testing.T) {
	t.Parallel()
	m := &model{}
	f := New(Config{Servers: []Backend{{"a", m}, {"b", m}}, InFlight: 256})
	defer f.Close()
	if got := f.Limit(); got != 256 {
		t.Errorf("limit %d", got)
	}
}

func TestLimitStaysWithinBounds(t *testing.T) {
	t.Parallel()
	c := newConcurrencyLimit(4, 128, DefaultStart)
	for n := range 1000 {
		c.addMeasure(measure{inFlight: float64(c.limit), goodput: float64(c.limit) * (0.5 + random(n))})
		c.addMetrics(engine.ServerMetrics{Running: 1, Waiting: 100 * random(n+1)}, c.limit)
		if n%7 == 0 {
			c.addRefusals(time.Unix(int64(n), 0), int(300*random(n+2)))
		}
		if c.limit < 4 || c.limit > 128 {
			t.Fatalf("after %d: %+v", n, c)
		}
	}
}

func Example_concurrencyLimit() {
	c := newConcurrencyLimit(4, 512, 64)
	for range 6 { // a server whose goodput grows up to 200 requests
		fmt.Print(c.limit, " ")
		c.addMeasure(measure{inFlight: float64(c.limit), goodput: min(float64(c.limit), 200)})
	}
	fmt.Println(c.limit)
	// Output: 64 128 256 320 204 163 204
}

// refusing is a server that refuses everything.
type refusing struct{ says ratelimit.Report }

func (r refusing) Answer(context.Context, engine.Request, func()) (engine.Answer, error) {
	return engine.Answer{}, &fault.Error{Kind: fault.Throttled, RetryAfter: r.says.Wait,
		Err: &engine.StatusError{Status: 429, RateLimit: r.says, Err: errors.New("too many")}}
}

func (refusing) Ready(context.Context) (string, error) { return "", nil }
func (refusing) Close() error                          { return nil }
func (refusing) Metrics(context.Context) (engine.ServerMetrics, error) {
	return engine.UnknownMetrics(), nil
}

// A server whose limit of a minute is used up may get as many requests at once later.
func TestRefusalsOfAMinuteSayNothingOfRequestsAtOnce(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		says   ratelimit.Report
		lowers bool
	}{
		"of a minute":   {ratelimit.Report{Refused: true, Wait: 40 * time.Second}, false},
		"a short wait":  {ratelimit.Report{Refused: true, Wait: time.Second}, true},
		"at once":       {ratelimit.Report{Refused: true, AtOnce: true, Wait: 40 * time.Second}, true},
		"not a refusal": {ratelimit.Report{Wait: 40 * time.Second}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				f := New(Config{Servers: []Backend{{"a", refusing{c.says}}}})
				defer f.Close()
				before := f.Limit()
				for range 2 * before {
					_, _ = f.Answer(t.Context(), engine.Request{Body: []byte("x")}, func() {})
				}
				if got := f.Limit(); (got < before) != c.lowers {
					t.Errorf("%d requests at once after refusals, %d before", got, before)
				}
			})
		})
	}
}
