package regressions

import (
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"rollout/gpuworker/engine/balancer"
	"rollout/localstack/fakellm"
	"rollout/shared/core/ratelimit"
)

// hosted is a server with a limit of a minute. It notes when it answered, and when it
// refused.
type hosted struct {
	http.Handler
	began time.Time // the first request

	mu                sync.Mutex
	answered, refused []time.Duration // since began
}

// ServeHTTP implements http.Handler.
func (h *hosted) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		h.Handler.ServeHTTP(w, r)
		return
	}
	h.mu.Lock()
	if h.began.IsZero() {
		h.began = time.Now()
	}
	at := time.Since(h.began)
	h.mu.Unlock()
	h.Handler.ServeHTTP(&noted{w, func(status int) {
		h.mu.Lock()
		defer h.mu.Unlock()
		if status == http.StatusTooManyRequests {
			h.refused = append(h.refused, at)
		} else {
			h.answered = append(h.answered, at)
		}
	}}, r)
}

// noted calls note with the status.
type noted struct {
	http.ResponseWriter
	note func(status int)
}

func (n *noted) WriteHeader(status int) {
	n.done(status)
	n.ResponseWriter.WriteHeader(status)
}

func (n *noted) Write(b []byte) (int, error) {
	n.done(http.StatusOK)
	return n.ResponseWriter.Write(b)
}

func (n *noted) done(status int) {
	if n.note != nil {
		n.note(status)
		n.note = nil
	}
}

// Unwrap is for http.ResponseController.
func (n *noted) Unwrap() http.ResponseWriter { return n.ResponseWriter }

// in counts what happened in a span.
func in(at []time.Duration, from, until time.Duration) (n int) {
	for _, t := range at {
		if t >= from && t < until {
			n++
		}
	}
	return n
}

// A hosted API that takes 600 requests in any minute has nothing to refuse after the first
// minute, and nearly all of its limit is used: with the limit in the config, in its
// headers, or found from its refusals; with one worker and with three.
func TestALimitOfAMinuteIsKeptAndUsed(t *testing.T) {
	t.Parallel()
	const perMinute, minutes, each = 600, 4, 100
	tokens := fakellm.Faults{MinuteTokens: perMinute * each}
	for name, c := range map[string]struct {
		limit  ratelimit.Amount // in the config
		server fakellm.Faults
	}{
		"config":           {ratelimit.Amount{Requests: perMinute}, fakellm.Faults{MinuteLimit: perMinute}},
		"headers":          {ratelimit.Amount{}, fakellm.Faults{MinuteLimit: perMinute, LimitHeaders: true}},
		"refusals":         {ratelimit.Amount{}, fakellm.Faults{MinuteLimit: perMinute}},
		"config, tokens":   {ratelimit.Amount{Tokens: perMinute * each}, tokens},
		"headers, tokens":  {ratelimit.Amount{}, fakellm.Faults{MinuteTokens: tokens.MinuteTokens, LimitHeaders: true}},
		"refusals, tokens": {ratelimit.Amount{}, tokens},
	} {
		for _, workers := range []int{1, 3} {
			t.Run(fmt.Sprintf("%s/%d workers", name, workers), func(t *testing.T) {
				t.Parallel()
				simulated(t, func(t *testing.T, p *system) {
					s, err := fakellm.New(fakellm.Config{Latency: 200 * time.Millisecond, Tokens: each - 2,
						Faults: c.server})
					must(t, err)
					h := &hosted{Handler: s}
					p.configure(fmt.Sprintf("[shard]\nitems = 50\n[sampling]\nmax_tokens = %d", each))
					p.functions()
					for range workers {
						client := clientOver(t, transport{to: h})
						e := balancer.New(balancer.Config{InFlight: 32,
							Servers: []balancer.Backend{{Name: "hosted", Server: client}}})
						t.Cleanup(func() { must(t, e.Close()) })
						p.work(setup{engine: e, inFlight: 32, limit: c.limit})
					}
					id := p.upload("prompts/x.jsonl", prompts(perMinute*(minutes+1)))
					p.await("it asks", func() bool { h.mu.Lock(); defer h.mu.Unlock(); return !h.began.IsZero() })
					time.Sleep(minutes * time.Minute)
					h.mu.Lock()
					defer h.mu.Unlock()
					if n := in(h.refused, time.Minute, minutes*time.Minute); n > 0 {
						t.Errorf("%d requests were refused after the first minute", n)
					}
					for m := 1; m < minutes; m++ {
						from := time.Duration(m) * time.Minute
						if n := in(h.answered, from, from+time.Minute); n < perMinute*95/100 {
							t.Errorf("%d requests were answered in minute %d, %d are allowed", n, m+1, perMinute)
						}
					}
					if st := p.state(id); st.Counts.Failed > 0 {
						t.Errorf("%d items failed", st.Counts.Failed)
					}
					t.Logf("%d refused in all", len(h.refused))
				})
			})
		}
	}
}
