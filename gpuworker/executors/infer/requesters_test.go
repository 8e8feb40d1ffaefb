package infer

import (
	"testing"
	"testing/synctest"
)

func TestGoroutinesAreReusedFromRoundToRound(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newRequesters()
		var used []*scratch
		ask := func(r *round) {
			r.do(func(sc *scratch) { used = append(used, sc) })
			synctest.Wait()
		}
		first := c.begin()
		ask(first)
		second := c.begin()
		ask(second)
		first.end()
		ask(second)
		if len(used) != 3 || used[0] != used[1] || used[1] != used[2] {
			t.Errorf("consecutive requests used the scratches %p, want the same one", used)
		}
		second.end() // the bubble ends only after the goroutine has
	})
}

func TestRequestsOfRoundRunConcurrently(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newRequesters()
		one, other := c.begin(), c.begin()
		open, ended := make(chan struct{}), false
		for range 3 {
			one.do(func(*scratch) { <-open })
		}
		other.do(func(*scratch) {})
		other.end() // waits only for its own requests
		go func() {
			one.end()
			ended = true
		}()
		synctest.Wait()
		if ended {
			t.Error("the round ended before its requests")
		}
		close(open)
		synctest.Wait()
		if !ended {
			t.Error("the round did not end after its requests")
		}
		next := c.begin() // after the goroutines have ended
		next.do(func(*scratch) {})
		next.end()
	})
}
