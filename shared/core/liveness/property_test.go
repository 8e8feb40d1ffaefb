package liveness

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// hostile draws a number as servers, proxies and attackers may report it.
func hostile(t *rapid.T, name string) float64 {
	return rapid.OneOf(rapid.Float64Range(0, 1e6), rapid.Float64(),
		rapid.SampledFrom([]float64{-1, 0, math.NaN(), math.Inf(1), math.Inf(-1), math.MaxFloat64})).Draw(t, name)
}

// Whatever a server reports: only growth of a counter shows work, a request is not
// vouched for after a bounded share, and estimates stay within what the answer may have.
func TestHostileReadings(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s := New(silence)
		now := time.Unix(0, 0)
		longest := rapid.Int64Range(0, 1<<40).Draw(t, "max_tokens")
		q := s.Begin("m", longest, now)
		var last Reading
		for range rapid.IntRange(1, 40).Draw(t, "readings") {
			now = now.Add(time.Duration(rapid.IntRange(1, 60_000).Draw(t, "ms")) * time.Millisecond)
			r := Reading{Start: rapid.SampledFrom([]string{"", "a", "b"}).Draw(t, "start"),
				Running: hostile(t, "running"), Waiting: hostile(t, "waiting"),
				Tokens: hostile(t, "tokens"), Steps: hostile(t, "steps")}
			worked := s.Read(r)
			if worked && !(r.Tokens > last.Tokens) && !(r.Steps > last.Steps) {
				t.Fatalf("%+v after %+v shows work", r, last)
			}
			if r.counts() {
				last = r
			}
			if s.share < 0 || s.share != s.share {
				t.Fatalf("the share is %v", s.share)
			}
			if n := s.Generated(q, now); n < 0 || longest > 0 && n > longest {
				t.Fatalf("%d tokens are estimated, of at most %d", n, longest)
			}
			if rapid.Bool().Draw(t, "an answer comes") {
				s.Answered(q, rapid.Int64Range(-5, 1<<50).Draw(t, "answered"), rapid.Bool().Draw(t, "known"), now,
					rapid.IntRange(-1, 600).Draw(t, "in flight"))
			}
			_ = s.Vouches(q, now, rapid.IntRange(0, 600).Draw(t, "in flight now"))
		}
	})
}

// A server with continuous batching is simulated step by step. No request that it works
// on is ever without a voucher for a silence, however its load and its queue change, and
// a request that it has lost is not vouched for without an end.
func TestVouchersOfASimulatedServer(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		type job struct {
			left, max int64
			request   Request
			vouched   time.Time
		}
		s := New(silence)
		now := time.Unix(0, 0)
		slots := rapid.IntRange(1, 16).Draw(t, "slots")
		inFlight := rapid.IntRange(1, 48).Draw(t, "in flight")
		step := time.Duration(rapid.IntRange(20, 2000).Draw(t, "step in ms")) * time.Millisecond
		var queue, running []*job
		begin := func() *job {
			longest := rapid.Int64Range(1, 300).Draw(t, "max_tokens")
			return &job{rapid.Int64Range(1, longest).Draw(t, "tokens"), longest, s.Begin("m", longest, now), now}
		}
		read := func(tokens float64) bool {
			return s.Read(Reading{Running: float64(len(running)), Waiting: float64(len(queue)), Tokens: tokens, Steps: -1})
		}
		read(0)
		lost := s.Begin("m", 10, now)
		lostUntil := now
		tokens, since := 0.0, time.Duration(0)
		for range rapid.IntRange(1, 4000).Draw(t, "steps") {
			for len(queue)+len(running) < inFlight {
				queue = append(queue, begin())
			}
			for len(running) < slots && len(queue) > 0 {
				running, queue = append(running, queue[0]), queue[1:]
			}
			now = now.Add(step)
			since += step
			kept := running[:0]
			for _, j := range running {
				tokens++
				if j.left--; j.left > 0 {
					kept = append(kept, j)
					continue
				}
				s.Answered(j.request, 1, true, now, inFlight)
			}
			running = kept
			if since < time.Second {
				continue
			}
			since = 0
			if !read(tokens) {
				continue
			}
			for _, j := range append(append([]*job{}, running...), queue...) {
				if s.Vouches(j.request, now, inFlight) {
					j.vouched = now
				} else if now.Sub(j.vouched) > silence {
					t.Fatalf("a request of %d tokens that the server works on would be cancelled", j.max)
				}
			}
			if s.Vouches(lost, now, inFlight) {
				lostUntil = now
			}
		}
		rounds := float64(maxShare*10 + extraShare)
		during := lostUntil.Sub(time.Unix(0, 0))
		if limit := 4 * rounds * float64(inFlight+slots) * float64(step); float64(during) > limit {
			t.Fatalf("a lost request is vouched for during %s", during)
		}
	})
}
