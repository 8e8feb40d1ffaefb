package worker

import (
	"sync"
	"testing"
	"time"
)

const testFence = 4 * time.Second

func TestLeaseIsValidForTheFenceAfterTheLastGoodHeartbeatWasSent(t *testing.T) {
	t.Parallel()
	const s = time.Second
	type heartbeat struct{ sent, known time.Duration } // known is when its success was known
	for _, c := range []struct {
		name       string
		heartbeats []heartbeat
		at         time.Duration
		valid      bool
	}{
		{"new", nil, 0, true},
		{"just before the fence", nil, testFence - 1, true},
		{"at the fence", nil, testFence, false},
		{"renewed", []heartbeat{{3 * s, 3 * s}}, 7*s - 1, true},
		{"counted from when it was sent, not known", []heartbeat{{s, 3 * s}}, 5 * s, false},
		{"an older heartbeat known later changes nothing", []heartbeat{{2 * s, 2 * s}, {s, 3 * s}}, 6*s - 1, true},
		{"an older heartbeat known later does not shorten it", []heartbeat{{2 * s, 2 * s}, {s, 3 * s}}, 6 * s, false},
		{"sent in time and known late", []heartbeat{{testFence - 1, 5 * s}}, 6 * s, true},
	} {
		start := time.Now()
		l := newLease(testFence, start)
		for _, b := range c.heartbeats {
			l.renew(start.Add(b.sent))
		}
		if got := l.valid(start.Add(c.at)); got != c.valid {
			t.Errorf("%s: valid is %v", c.name, got)
		}
	}
}

func TestLostLeaseStaysLost(t *testing.T) {
	t.Parallel()
	start := time.Now()
	l := newLease(testFence, start)
	if l.valid(start.Add(testFence)) {
		t.Fatal("the lease is valid at the fence")
	}
	l.renew(start.Add(testFence))
	for _, at := range []time.Duration{0, testFence, testFence + 1, time.Hour} {
		if l.valid(start.Add(at)) {
			t.Errorf("the lease is valid again at %s", at)
		}
	}
}

func TestLeaseIsSafeForConcurrentUse(t *testing.T) {
	t.Parallel()
	start := time.Now()
	l := newLease(testFence, start)
	var wg sync.WaitGroup
	for n := range 4 {
		wg.Go(func() {
			for i := range 100 {
				at := start.Add(time.Duration(n*100+i) * time.Millisecond)
				l.renew(at)
				l.valid(at)
			}
		})
	}
	wg.Wait()
}
