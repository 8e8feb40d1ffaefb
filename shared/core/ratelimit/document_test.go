package ratelimit_test

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"rollout/shared/core/ratelimit"
)

var perMinute = ratelimit.Rules{Limit: ratelimit.Amount{Requests: 600}, Skew: time.Second}

// ask asks for everything.
func ask(worker string, used ratelimit.Usage) ratelimit.Ask {
	return ratelimit.Ask{Worker: worker, Want: perMinute.Limit, Least: ratelimit.Amount{Requests: 1}, Used: used}
}

// share returns the requests of the worker's share.
func share(t *testing.T, d ratelimit.Doc, worker string) int64 {
	t.Helper()
	g, ok := d.Grant(worker)
	if !ok {
		t.Fatalf("%s has no grant in %+v", worker, d)
	}
	return g.Share.Requests
}

func take(t *testing.T, d ratelimit.Doc, a ratelimit.Ask, now time.Time) ratelimit.Doc {
	t.Helper()
	d, _, ok := perMinute.Take(d, a, now)
	if !ok {
		t.Fatalf("%s gets no slice", a.Worker)
	}
	return d
}

func TestSharesMoveAsSoonAsTheyAreNotUsed(t *testing.T) {
	t.Parallel()
	now := start
	d := take(t, ratelimit.Doc{}, ask("a", ratelimit.Usage{}), now)
	if n := share(t, d, "a"); n != 600 {
		t.Errorf("alone, a gets %d", n)
	}
	d = take(t, d, ask("b", ratelimit.Usage{}), now.Add(time.Second))
	if n := share(t, d, "b"); n != 0 {
		t.Errorf("b gets %d before a gives something up", n)
	}
	used := ratelimit.Usage{{Requests: 400}} // within the last ten seconds
	now = now.Add(4 * time.Second)
	d = take(t, d, ask("a", used), now)
	if n := share(t, d, "a"); n != 300 {
		t.Errorf("beside b, a keeps %d", n)
	}
	d = take(t, d, ask("b", ratelimit.Usage{}), now.Add(time.Second))
	if n := share(t, d, "b"); n != 200 { // a has used 100 of the 300 that it gave up
		t.Errorf("b gets %d of what a gave up, want the 200 that a did not use", n)
	}
	now = now.Add(5 * time.Second)
	d = take(t, d, ask("a", used), now)
	d = take(t, d, ask("b", ratelimit.Usage{{Requests: 20}}), now.Add(2*ratelimit.Minute))
	if n := share(t, d, "b"); n != 600 { // a's slice is over as well: it has crashed
		t.Errorf("b gets %d two minutes later", n)
	}
}

// What a crashed worker may have begun ahead of an even pace is not free for a minute.
func TestSliceThatExpiredIsFreeButForABurst(t *testing.T) {
	t.Parallel()
	d := take(t, ratelimit.Doc{}, ask("a", ratelimit.Usage{}), start)
	d = take(t, d, ask("b", ratelimit.Usage{}), start.Add(time.Second))
	for _, c := range []struct {
		after time.Duration // of the end of a's slice
		share int64
	}{
		{0, 0}, {time.Second, 0}, {2 * time.Second, 590}, {time.Minute, 590}, {63 * time.Second, 600},
	} {
		now := start.Add(ratelimit.Length(1) + c.after)
		if n := share(t, take(t, d, ask("b", ratelimit.Usage{}), now), "b"); n != c.share {
			t.Errorf("%s after a's slice: b gets %d, want %d", c.after, n, c.share)
		}
	}
}

// A worker whose slice expired comes back, and has used the whole limit meanwhile. What
// it used does not become free when the next holder gives the share up.
func TestUseOfASliceThatExpiredIsCountedWhenItsWorkerReturns(t *testing.T) {
	t.Parallel()
	d := take(t, ratelimit.Doc{}, ask("a", ratelimit.Usage{}), start)
	now := start.Add(ratelimit.Length(1) + 2*time.Second)
	d = take(t, d, ask("b", ratelimit.Usage{}), now) // a's slice is over
	d = take(t, d, ask("a", ratelimit.Usage{{}, {Requests: 600}}), now.Add(time.Second))
	d = perMinute.Leave(d, "b", ratelimit.Usage{}, now.Add(2*time.Second))
	if n := share(t, take(t, d, ask("c", ratelimit.Usage{}), now.Add(3*time.Second)), "c"); n != 0 {
		t.Errorf("c gets %d", n)
	}
	if n := share(t, take(t, d, ask("c", ratelimit.Usage{}), now.Add(ratelimit.Minute)), "c"); n < 500 {
		t.Errorf("a minute later c gets %d", n)
	}
}

func TestLargeRequestGetsItsTurn(t *testing.T) {
	t.Parallel()
	r := ratelimit.Rules{Limit: ratelimit.Amount{Tokens: 1000}}
	a := ratelimit.Ask{Worker: "a", Want: r.Limit, Least: ratelimit.Amount{Tokens: 900}}
	b := ratelimit.Ask{Worker: "b", Want: r.Limit, Least: ratelimit.Amount{Tokens: 900}}
	var d ratelimit.Doc
	got := map[string]int{}
	now := start
	for range 100 {
		for _, q := range []ratelimit.Ask{a, b} {
			next, g, ok := r.Take(d, q, now)
			if !ok {
				t.Fatal("no slice")
			}
			if d = next; g.Share.Tokens >= 900 {
				got[q.Worker]++
			}
			now = now.Add(3 * time.Second)
		}
	}
	if got["a"] < 20 || got["b"] < 20 {
		t.Errorf("of 100 slices each, these are of use: %v", got)
	}
}

// A clock that was wrong must not block a limit for good.
func TestTimesInTheFutureAreBroughtForward(t *testing.T) {
	t.Parallel()
	d := take(t, ratelimit.Doc{}, ask("a", ratelimit.Usage{}), start.Add(1000*time.Hour))
	if w := d.Wait(start); w > ratelimit.MinGap {
		t.Errorf("the next write has to wait %s", w)
	}
	now := start
	for range 100 {
		now = now.Add(time.Minute)
		d = take(t, d, ask("b", ratelimit.Usage{}), now)
	}
	if n := share(t, d, "b"); n != 600 {
		t.Errorf("after 100 minutes b has %d", n)
	}
}

func TestDocumentIsBounded(t *testing.T) {
	t.Parallel()
	r := ratelimit.Rules{Limit: ratelimit.Amount{Requests: 1e9, Tokens: 1e9}}
	var used ratelimit.Usage
	for k := range used {
		used[k] = ratelimit.Amount{Requests: 100_000_000, Tokens: 100_000_000}
	}
	var d ratelimit.Doc
	now := start
	for round := range 2 {
		for n := range ratelimit.MaxHolders + 1 {
			now = now.Add(time.Nanosecond)
			next, _, ok := r.Take(d, ratelimit.Ask{Worker: fmt.Sprintf("01JD2ZQ4T5W0M1X9YB7R3K%04d", n), Want: r.Limit,
				Least: ratelimit.Amount{Requests: 1, Tokens: 4_000_000}, Used: used}, now)
			if ok != (n < ratelimit.MaxHolders) {
				t.Fatalf("round %d: worker %d has a place: %v", round, n, ok)
			}
			d = next
		}
	}
	if b, err := json.Marshal(d); err != nil || len(b) > 256<<10 {
		t.Errorf("the document has %d bytes: %v", len(b), err)
	} else {
		t.Logf("%d bytes for %d workers", len(b), len(d.Grants))
	}
}
