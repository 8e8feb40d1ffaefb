package infer

import (
	"testing"
	"testing/synctest"
)

func TestACrewGoesOnFromShardToShard(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newRequesters()
		var hands []*scratch
		ask := func(s *round) {
			s.do(func(h *scratch) { hands = append(hands, h) })
			synctest.Wait()
		}
		first := c.begin()
		ask(first)
		second := c.begin()
		ask(second)
		first.end()
		ask(second)
		if len(hands) != 3 || hands[0] != hands[1] || hands[1] != hands[2] {
			t.Errorf("requests one after the other were made by the hands %p", hands)
		}
		second.end() // and the bubble ends only if its goroutine has
	})
}

func TestACrewsRequestsAreMadeAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newRequesters()
		one, other := c.begin(), c.begin()
		open, ended := make(chan struct{}), false
		for range 3 {
			one.do(func(*scratch) { <-open })
		}
		other.do(func(*scratch) {})
		other.end() // waits for its own alone
		go func() {
			one.end()
			ended = true
		}()
		synctest.Wait()
		if ended {
			t.Error("a shift ended before its requests")
		}
		close(open)
		synctest.Wait()
		if !ended {
			t.Error("a shift did not end with its requests")
		}
		next := c.begin() // after all have left
		next.do(func(*scratch) {})
		next.end()
	})
}
