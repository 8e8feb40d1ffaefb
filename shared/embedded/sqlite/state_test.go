package sqlite

import (
	"sync"
	"testing"
	"time"

	"rollout/shared/document"
	"rollout/shared/document/documenttest"
	"rollout/shared/queue"
	"rollout/shared/queue/queuetest"
)

// openState opens the state in the folder, and closes it when the test ends.
func openState(t testing.TB, dir string, o Options) *State {
	t.Helper()
	s, err := Open(t.Context(), dir, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("close %s: %v", dir, err)
		}
	})
	return s
}

// manualClock is a clock that advances only when a test advances it.
type manualClock struct {
	mu  sync.Mutex
	now time.Time
}

func newManualClock() *manualClock {
	return &manualClock{now: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}
}

func (c *manualClock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *manualClock) advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

func TestDocuments(t *testing.T) {
	t.Parallel()
	documenttest.Run(t,
		func(t *testing.T) document.Store { return openState(t, t.TempDir(), Options{}).Documents() },
		documenttest.Features{
			Watch: true,
			Reopen: func(t *testing.T, s document.Store) document.Store {
				return openState(t, s.(documents).state.dir(), Options{}).Documents()
			},
		})
}

func TestQueues(t *testing.T) {
	t.Parallel()
	queuetest.Run(t,
		func(t *testing.T) queue.Queues {
			return openState(t, t.TempDir(), Options{Clock: newManualClock()}).Queues()
		},
		queuetest.Features{
			Depth:   true,
			Advance: func(q queue.Queues, d time.Duration) { q.(queues).state.clock.(*manualClock).advance(d) },
			Reopen: func(t *testing.T, q queue.Queues) queue.Queues {
				s := q.(queues).state
				return openState(t, s.dir(), Options{Clock: s.clock}).Queues()
			},
		})
}
