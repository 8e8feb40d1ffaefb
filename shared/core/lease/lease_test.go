package lease

import (
	"sync"
	"testing"
	"time"
)

const fence = 4 * time.Second

// A lease holds for the fence after the last good beat was sent, and a lost
// one never comes back.
func TestLease(t *testing.T) {
	t.Parallel()
	type beat struct{ sent, known time.Duration } // known: when its success was
	for _, c := range []struct {
		name  string
		beats []beat
		at    time.Duration
		holds bool
	}{
		{"new", nil, 0, true},
		{"just before the fence", nil, fence - 1, true},
		{"at the fence", nil, fence, false},
		{"renewed", []beat{{3 * time.Second, 3 * time.Second}}, 7*time.Second - 1, true},
		{"counted from when it was sent, not known", []beat{{time.Second, 3 * time.Second}}, 5 * time.Second, false},
		{"an older beat known later changes nothing", []beat{{2 * time.Second, 2 * time.Second}, {time.Second, 3 * time.Second}}, 6*time.Second - 1, true},
		{"the older beat does not shorten it", []beat{{2 * time.Second, 2 * time.Second}, {time.Second, 3 * time.Second}}, 6 * time.Second, false},
		{"sent in time, known late", []beat{{fence - 1, 5 * time.Second}}, 6 * time.Second, true},
	} {
		start := time.Now()
		l := New(fence, start)
		for _, b := range c.beats {
			l.Renew(start.Add(b.sent))
		}
		if got := l.Valid(start.Add(c.at)); got != c.holds {
			t.Errorf("%s: holds is %v", c.name, got)
		}
	}
}

func TestALostLeaseNeverComesBack(t *testing.T) {
	t.Parallel()
	start := time.Now()
	l := New(fence, start)
	if l.Valid(start.Add(fence)) {
		t.Fatal("holds at the fence")
	}
	l.Renew(start.Add(fence))
	for _, at := range []time.Duration{0, fence, fence + 1, time.Hour} {
		if l.Valid(start.Add(at)) {
			t.Errorf("holds again at %s", at)
		}
	}
}

func TestLeaseIsSafeForConcurrentUse(t *testing.T) {
	t.Parallel()
	start := time.Now()
	l := New(fence, start)
	var wg sync.WaitGroup
	for n := range 4 {
		wg.Go(func() {
			for i := range 100 {
				at := start.Add(time.Duration(n*100+i) * time.Millisecond)
				l.Renew(at)
				l.Valid(at)
			}
		})
	}
	wg.Wait()
}

func TestTerms(t *testing.T) {
	t.Parallel()
	var terms Terms
	for i, c := range []struct {
		term uint64
		ok   bool
	}{{0, true}, {0, true}, {2, true}, {1, false}, {2, true}, {1 << 63, true}, {3, false}} {
		if got := terms.Accept(c.term); got != c.ok {
			t.Errorf("message %d of term %d: %v", i, c.term, got)
		}
	}
}
